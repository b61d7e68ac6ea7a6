/* ptx_func.c - the functions' bodies. nextafter and fmod are exact. sin, cos and tan are for arguments that the vector math
 * does not reduce: the argument times 2/pi modulo 4 in 192-bit integers, then Taylor polynomials in f64. */
#include "target/cuda/ptx_func.h"

/* Arguments and results go through memory of kind .param: with registers there is no ABI, and nothing can be linked. */
#define CALL1(R, NAME, A)                                                     \
    "\t{\n\t.param .f64 p0;\n\t.param .f64 q;\n\tst.param.f64 [p0], " A ";\n" \
    "\tcall (q), " NAME ", (p0);\n\tld.param.f64 " R ", [q];\n\t}\n"
#define CALL2(R, NAME, A, B)                                        \
    "\t{\n\t.param .f64 p0;\n\t.param .f64 p1;\n\t.param .f64 q;\n" \
    "\tst.param.f64 [p0], " A ";\n\tst.param.f64 [p1], " B ";\n"    \
    "\tcall (q), " NAME ", (p0, p1);\n\tld.param.f64 " R ", [q];\n\t}\n"

#define NEXTAFTER(F, B, SIGN, ZERO)                                                                  \
    "\t.reg .pred %p<3>;\n\t.reg ." F " %f<2>;\n\t.reg .b" B " %q<4>;\n"                             \
    "\tmov.b" B " %q0, x;\n\tsetp.lt." F " %p0, x, y;\n\tsetp.gt." F " %p1, x, " ZERO                \
    ";\n\txor.pred %p0, %p0, %p1;\n"                                                                 \
    "\tadd.s" B " %q1, %q0, 1;\n\tsub.s" B " %q2, %q0, 1;\n\tselp.b" B " %q0, %q2, %q1, %p0;\n"      \
    "\tmov.b" B " %q3, y;\n\tand.b" B " %q3, %q3, " SIGN ";\n\tor.b" B " %q3, %q3, 1;\n"             \
    "\tsetp.eq." F " %p0, x, " ZERO ";\n\tselp.b" B " %q0, %q3, %q0, %p0;\n\tmov.b" B " %f0, %q0;\n" \
    "\tsetp.eq." F " %p0, x, y;\n\tselp." F " %f0, y, %f0, %p0;\n\tadd.rn." F " %f1, x, y;\n"        \
    "\tsetp.nan." F " %p0, x, y;\n\tselp." F " r, %f1, %f0, %p0;\n"

/* The same function of f64, rounded. */
#define BY_F64(NAME)       \
    "\t.reg .f64 %d<2>;\n" \
    "\tcvt.f64.f32 %d0, x;\n" CALL1("%d1", "tp_" NAME "_f64", "%d0") "\tcvt.rn.f32.f64 r, %d1;\n"

#define PART(OUT, COSINE) CALL2(OUT, "tp_sincos_f64", "x", COSINE)
#define SINE              "0d0000000000000000"
#define COSINE            "0d3FF0000000000000"

/* Arguments x and y, result r. */
static const struct {
    const char *name, *needs;
    int nin;
    const char *body, *ahead;
} funcs[] = {
    { "tp_nextafter_f32", NULL, 2, NEXTAFTER("f32", "32", "0x80000000", "0f00000000") },
    { "tp_nextafter_f64", NULL, 2, NEXTAFTER("f64", "64", "0x8000000000000000", "0d0000000000000000") },
    { "tp_fmod_f64", NULL, 2,
      "\t.reg .pred %p<4>;\n\t.reg .f64 %d<6>;\n\t.reg .b64 %q<8>;\n\t.reg .b32 %r<6>;\n"
      "\tabs.f64 %d0, x;\n\tabs.f64 %d1, y;\n"
      "\tmov.f64 r, 0d7FF8000000000000;\n" /* 0 divides nothing, infinity is no multiple: NaN */
      "\tsetp.nan.f64 %p0, x, y;\n\t@%p0 bra DONE;\n"
      "\tsetp.eq.f64 %p0, %d1, 0d0000000000000000;\n\t@%p0 bra DONE;\n"
      "\tsetp.eq.f64 %p0, %d0, 0d7FF0000000000000;\n\t@%p0 bra DONE;\n"
      "\tmov.f64 r, x;\n\tsetp.lt.f64 %p0, %d0, %d1;\n\t@%p0 bra DONE;\n"
      "\tmov.b64 %q0, %d0;\n\tmov.b64 %q1, %d1;\n"
      "\tshr.u64 %q2, %q0, 52;\n\tcvt.u32.u64 %r0, %q2;\n\tand.b64 %q0, %q0, 0xFFFFFFFFFFFFF;\n"
      "\tshr.u64 %q3, %q1, 52;\n\tcvt.u32.u64 %r1, %q3;\n\tand.b64 %q1, %q1, 0xFFFFFFFFFFFFF;\n"
      "\tsetp.eq.s32 %p0, %r0, 0;\n\t@%p0 bra SUBX;\n\tor.b64 %q0, %q0, 0x10000000000000;\n\tbra NEXT;\n"
      "SUBX:\n\tclz.b64 %r2, %q0;\n\tsub.s32 %r2, %r2, 11;\n\tshl.b64 %q0, %q0, %r2;\n\tsub.s32 %r0, 1, "
      "%r2;\n"
      "NEXT:\n\tsetp.eq.s32 %p0, %r1, 0;\n\t@%p0 bra SUBY;\n\tor.b64 %q1, %q1, 0x10000000000000;\n\tbra "
      "LOOP;\n"
      "SUBY:\n\tclz.b64 %r2, %q1;\n\tsub.s32 %r2, %r2, 11;\n\tshl.b64 %q1, %q1, %r2;\n\tsub.s32 %r1, 1, "
      "%r2;\n"
      "LOOP:\n\tsetp.ge.u64 %p1, %q0, %q1;\n\t@%p1 sub.s64 %q0, %q0, %q1;\n"
      "\tsetp.le.s32 %p0, %r0, %r1;\n\t@%p0 bra OUT;\n\tshl.b64 %q0, %q0, 1;\n\tsub.s32 %r0, %r0, 1;\n\tbra "
      "LOOP;\n"
      "OUT:\n\tmov.f64 %d2, 0d0000000000000000;\n\tsetp.eq.s64 %p0, %q0, 0;\n\t@%p0 bra SIGN;\n"
      "\tclz.b64 %r2, %q0;\n\tsub.s32 %r2, %r2, 11;\n\tshl.b64 %q0, %q0, %r2;\n\tsub.s32 %r1, %r1, %r2;\n"
      "\tsetp.le.s32 %p0, %r1, 0;\n\t@%p0 bra SMALL;\n"
      "\tsub.s32 %r3, %r1, 1;\n\tcvt.s64.s32 %q4, %r3;\n\tshl.b64 %q4, %q4, 52;\n\tadd.s64 %q0, %q0, "
      "%q4;\n\tbra BITS;\n"
      "SMALL:\n\tsub.s32 %r3, 1, %r1;\n\tshr.u64 %q0, %q0, %r3;\n"
      "BITS:\n\tmov.b64 %d2, %q0;\n"
      "SIGN:\n\tcopysign.f64 r, x, %d2;\n"
      "DONE:\n" },
    { "tp_fmod_f32", "tp_fmod_f64", 2, /* exact: the remainder of two f32 is one */
      "\t.reg .f64 %d<3>;\n\tcvt.f64.f32 %d0, x;\n\tcvt.f64.f32 %d1, y;\n" CALL2(
          "%d2", "tp_fmod_f64", "%d0", "%d1") "\tcvt.rn.f32.f64 r, %d2;\n" },
    { "tp_sincos_f64", NULL, 2, /* the sine of x, or where y is not 0 its cosine */
      "\t.reg .pred %p<4>;\n"
      "\t.reg .f64 %d<24>;\n"
      "\t.reg .b64 %q<24>;\n"
      "\t.reg .b32 %r<8>;\n"
      "\tmov.f64 r, 0d7FF8000000000000;\n"
      "\tmov.b64 %q0, x;\n"
      "\tshr.u64 %q1, %q0, 52;\n"
      "\tcvt.u32.u64 %r0, %q1;\n"
      "\tand.b32 %r0, %r0, 2047;\n"
      "\tsetp.eq.s32 %p0, %r0, 2047;\n"
      "\t@%p0 bra DONE;\n"
      "\tand.b64 %q0, %q0, 0xFFFFFFFFFFFFF;\n"
      "\tor.b64 %q0, %q0, 0x10000000000000;\n"
      "\tsub.s32 %r1, %r0, 1013;\n"
      "\tmax.s32 %r1, %r1, 0;\n"
      "\tshr.u32 %r2, %r1, 6;\n"
      "\tand.b32 %r3, %r1, 63;\n"
      "\tmul.wide.u32 %q1, %r2, 8;\n"
      "\tmov.u64 %q2, tp_two_over_pi;\n"
      "\tadd.s64 %q2, %q2, %q1;\n"
      "\tld.global.nc.b64 %q3, [%q2];\n"
      "\tld.global.nc.b64 %q4, [%q2+8];\n"
      "\tld.global.nc.b64 %q5, [%q2+16];\n"
      "\tld.global.nc.b64 %q6, [%q2+24];\n"
      "\tsub.s32 %r4, 64, %r3;\n"
      "\tshl.b64 %q3, %q3, %r3;\n"
      "\tshr.u64 %q7, %q4, %r4;\n"
      "\tor.b64 %q3, %q3, %q7;\n"
      "\tshl.b64 %q4, %q4, %r3;\n"
      "\tshr.u64 %q7, %q5, %r4;\n"
      "\tor.b64 %q4, %q4, %q7;\n"
      "\tshl.b64 %q5, %q5, %r3;\n"
      "\tshr.u64 %q7, %q6, %r4;\n"
      "\tor.b64 %q5, %q5, %q7;\n"
      "\tmul.lo.u64 %q8, %q0, %q4;\n"
      "\tmul.hi.u64 %q9, %q0, %q5;\n"
      "\tadd.cc.u64 %q8, %q8, %q9;\n"
      "\tmul.hi.u64 %q9, %q0, %q4;\n"
      "\taddc.u64 %q9, %q9, 0;\n"
      "\tmul.lo.u64 %q10, %q0, %q3;\n"
      "\tadd.s64 %q9, %q9, %q10;\n"
      "\tshr.u64 %q11, %q9, 62;\n"
      "\tcvt.u32.u64 %r5, %q11;\n"
      "\tshl.b64 %q9, %q9, 2;\n"
      "\tshr.u64 %q12, %q8, 62;\n"
      "\tor.b64 %q9, %q9, %q12;\n"
      "\tshl.b64 %q8, %q8, 2;\n"
      "\tshr.u64 %q13, %q9, 63;\n"
      "\tcvt.u32.u64 %r6, %q13;\n"
      "\tadd.s32 %r5, %r5, %r6;\n"
      "\tsetp.ne.s32 %p1, %r6, 0;\n"
      "\tnot.b64 %q14, %q9;\n"
      "\tnot.b64 %q15, %q8;\n"
      "\tselp.b64 %q9, %q14, %q9, %p1;\n"
      "\tselp.b64 %q8, %q15, %q8, %p1;\n"
      "\tclz.b64 %r7, %q9;\n"
      "\tsub.s32 %r4, 64, %r7;\n"
      "\tshl.b64 %q9, %q9, %r7;\n"
      "\tshr.u64 %q16, %q8, %r4;\n"
      "\tor.b64 %q9, %q9, %q16;\n"
      "\tshl.b64 %q8, %q8, %r7;\n"
      "\tshr.u64 %q17, %q9, 11;\n"
      "\tcvt.rn.f64.u64 %d0, %q17;\n"
      "\tshl.b64 %q18, %q9, 53;\n"
      "\tshr.u64 %q19, %q8, 11;\n"
      "\tor.b64 %q18, %q18, %q19;\n"
      "\tcvt.rn.f64.u64 %d1, %q18;\n"
      "\tmul.rn.f64 %d1, %d1, 0d3BF0000000000000;\n"
      "\tsub.s32 %r4, 970, %r7;\n"
      "\tcvt.s64.s32 %q20, %r4;\n"
      "\tshl.b64 %q20, %q20, 52;\n"
      "\tmov.b64 %d2, %q20;\n"
      "\tmul.rn.f64 %d0, %d0, %d2;\n"
      "\tmul.rn.f64 %d1, %d1, %d2;\n"
      "\tmul.rn.f64 %d3, %d0, 0d3FF921FB54442D18;\n"
      "\tneg.f64 %d4, %d3;\n"
      "\tfma.rn.f64 %d4, %d0, 0d3FF921FB54442D18, %d4;\n"
      "\tfma.rn.f64 %d4, %d0, 0d3C91A62633145C07, %d4;\n"
      "\tfma.rn.f64 %d4, %d1, 0d3FF921FB54442D18, %d4;\n"
      "\tadd.rn.f64 %d5, %d3, %d4;\n"
      "\tsub.rn.f64 %d6, %d3, %d5;\n"
      "\tadd.rn.f64 %d6, %d6, %d4;\n"
      "\tneg.f64 %d7, %d5;\n"
      "\tneg.f64 %d8, %d6;\n"
      "\tselp.f64 %d5, %d7, %d5, %p1;\n"
      "\tselp.f64 %d6, %d8, %d6, %p1;\n"
      "\tmul.rn.f64 %d9, %d5, %d5;\n"
      "\tmov.f64 %d10, 0d3CE952C77030AD4A;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0dBD6AE7F3E733B81F;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0d3DE6124613A86D09;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0dBE5AE64567F544E4;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0d3EC71DE3A556C734;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0dBF2A01A01A01A01A;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0d3F81111111111111;\n"
      "\tfma.rn.f64 %d10, %d10, %d9, 0dBFC5555555555555;\n"
      "\tmov.f64 %d11, 0dBCA6827863B97D97;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0d3D2AE7F3E733B81F;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0dBDA93974A8C07C9D;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0d3E21EED8EFF8D898;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0dBE927E4FB7789F5C;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0d3EFA01A01A01A01A;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0dBF56C16C16C16C17;\n"
      "\tfma.rn.f64 %d11, %d11, %d9, 0d3FA5555555555555;\n"
      "\tmul.rn.f64 %d12, %d9, 0dBFE0000000000000;\n"
      "\tadd.rn.f64 %d13, %d12, 0d3FF0000000000000;\n"
      "\tmul.rn.f64 %d14, %d5, %d9;\n"
      "\tmul.rn.f64 %d15, %d6, %d13;\n"
      "\tfma.rn.f64 %d15, %d14, %d10, %d15;\n"
      "\tadd.rn.f64 %d16, %d5, %d15;\n"
      "\tsub.rn.f64 %d17, 0d3FF0000000000000, %d13;\n"
      "\tadd.rn.f64 %d17, %d17, %d12;\n"
      "\tmul.rn.f64 %d18, %d9, %d9;\n"
      "\tfma.rn.f64 %d17, %d18, %d11, %d17;\n"
      "\tneg.f64 %d19, %d5;\n"
      "\tfma.rn.f64 %d17, %d6, %d19, %d17;\n"
      "\tadd.rn.f64 %d20, %d13, %d17;\n"
      "\tand.b32 %r0, %r5, 1;\n"
      "\tsetp.ne.s32 %p2, %r0, 0;\n"
      "\tselp.f64 %d21, %d20, %d16, %p2;\n"
      "\tselp.f64 %d22, %d16, %d20, %p2;\n"
      "\tand.b32 %r0, %r5, 2;\n"
      "\tsetp.ne.s32 %p2, %r0, 0;\n"
      "\tneg.f64 %d23, %d21;\n"
      "\tselp.f64 %d21, %d23, %d21, %p2;\n"
      "\tadd.s32 %r5, %r5, 1;\n"
      "\tand.b32 %r0, %r5, 2;\n"
      "\tsetp.ne.s32 %p2, %r0, 0;\n"
      "\tneg.f64 %d23, %d22;\n"
      "\tselp.f64 %d22, %d23, %d22, %p2;\n"
      "\tsetp.lt.f64 %p2, x, 0d0000000000000000;\n"
      "\tneg.f64 %d23, %d21;\n"
      "\tselp.f64 %d21, %d23, %d21, %p2;\n"
      "\tsetp.eq.f64 %p2, y, 0d0000000000000000;\n"
      "\tselp.f64 r, %d21, %d22, %p2;\n"
      "DONE:\n",
      ".global .align 16 .b64 tp_two_over_pi[20] = {0x0000000000000000, 0xA2F9836E4E441529, "
      "0xFC2757D1F534DDC0, 0xDB6295993C439041, 0xFE5163ABDEBBC561,\n"
      "0xB7246E3A424DD2E0, 0x06492EEA09D1921C, 0xFE1DEB1CB129A73E, 0xE88235F52EBB4484, 0xE99C7026B45F7E41,\n"
      "0x3991D639835339F4, 0x9C845F8BBDF9283B, 0x1FF897FFDE05980F, 0xEF2F118B5A0A6D1F, 0x6D367ECF27CB09B7,\n"
      "0x4F463F669E5FEA2D, 0x7527BAC7EBE5F17B, 0x3D0739F78A5292EA, 0x6BFB5FB11F8D5D08, "
      "0x56033046FC7B6BAB};\n" },
    { "tp_sin_f64", "tp_sincos_f64", 1, PART("r", SINE) },
    { "tp_cos_f64", "tp_sincos_f64", 1, PART("r", COSINE) },
    { "tp_tan_f64", "tp_sincos_f64", 1,
      "\t.reg .f64 %d<2>;\n" PART("%d0", SINE) PART("%d1", COSINE) "\tdiv.rn.f64 r, %d0, %d1;\n" },
    { "tp_sin_f32", "tp_sin_f64", 1, BY_F64("sin") },
    { "tp_cos_f32", "tp_cos_f64", 1, BY_F64("cos") },
    { "tp_tan_f32", "tp_tan_f64", 1, BY_F64("tan") },
};

void ptx_func_add(strbuf *head, const char *name, int nin, const char *body)
{
    const char *type = name + strlen(name) - 3;
    strbuf_addf(head, ".func (.param .%s out) %s (.param .%s in0", type, name, type);
    strbuf_addf(head, nin == 2 ? ", .param .%s in1)\n{\n" : ")\n{\n", type);
    strbuf_addf(head, "\t.reg .%s r, x, y;\n\tld.param.%s x, [in0];\n", type, type);
    if (nin == 2)
        strbuf_addf(head, "\tld.param.%s y, [in1];\n", type);
    strbuf_addf(head, "%s\tst.param.%s [out], r;\n\tret;\n}\n", body, type);
}

bool ptx_func_need(map *seen, strbuf *head, const char *name)
{
    if (map_get(seen, name))
        return true;
    for (size_t i = 0; i < COUNT(funcs); i++) {
        if (strcmp(funcs[i].name, name))
            continue;
        if (funcs[i].needs)
            ptx_func_need(seen, head, funcs[i].needs);
        if (funcs[i].ahead)
            strbuf_add(head, funcs[i].ahead);
        ptx_func_add(head, name, funcs[i].nin, funcs[i].body);
        map_put(seen, name, (void *)1);
        return true;
    }
    return false;
}
