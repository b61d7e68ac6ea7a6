/* pw_act.c - the loops of pw_act.def, once per instruction set. */
#define PW_NAME(nm, t) ISA_NAME(pw_##nm##_##t)
#include "ops/simd/pw_loops.h"

/* tanh(log(1 + e^x)) = n / (n + 2) with n = e^x (e^x + 2) */
VM_INL float tanh_softplus_f32(float x)
{
    float e = m_exp_f32(x > 20.0f ? 20.0f : x), n = e * (e + 2.0f);
    return n / (n + 2.0f);
}
VM_INL double tanh_softplus_f64(double x)
{
    double e = m_exp_f64(x > 30.0 ? 30.0 : x), n = e * (e + 2.0);
    return n / (n + 2.0);
}
#define tanh_softplus(x) M1(tanh_softplus, x)

#define HELPERS(T, sfx)                                                                 \
    VM_INL T gelu_tanh_grad_##sfx(T g, T x)                                             \
    {                                                                                   \
        const T k = (T)0.79788456080286535588, c = (T)0.044715;                         \
        T t = M_tanh(k * (x + c * x * x * x));                                          \
        T d = (T)0.5 * x * ((T)1 - t * t) * k * ((T)1 + 3 * c * x * x);                 \
        return g * ((T)0.5 * ((T)1 + t) + d);                                           \
    }                                                                                   \
    VM_INL T mish_grad_##sfx(T g, T x)                                                  \
    {                                                                                   \
        T t = tanh_softplus(x), s = M_sigmoid(x);                                       \
        return g * (t + x * s * ((T)1 - t * t));                                        \
    }                                                                                   \
    VM_INL T silu_grad_##sfx(T g, T x, T s) { return g * s * ((T)1 + x * ((T)1 - s)); } \
    VM_INL T logit_of_##sfx(T x) { return M_log(x / ((T)1 - x)); }
HELPERS(float, f32)
HELPERS(double, f64)
#define gelu_tanh_grad(g, x) M2(gelu_tanh_grad, g, x)
#define silu_grad(g, x, s)   _Generic((x), float : silu_grad_f32, double : silu_grad_f64)(g, x, s)
#define mish_grad(g, x)      M2(mish_grad, g, x)
#define logit_of(x)          M1(logit_of, x)
#include "ops/pw_act.def"
