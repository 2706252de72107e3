// Package limits bounds what is in flight, and shares it fairly between callers. Its yardstick is
// kube-apiserver's own protection: short requests wait for their turn, long-running ones have a
// total, and the bytes of large answers are counted until their clients have read them.
package limits
