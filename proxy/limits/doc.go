// Package limits bounds requests and connections, and shares the bounds fairly between callers, like kube-apiserver's
// own protection: short requests wait for their turn, long-running ones have a total, and the bytes of large answers
// are counted until their clients have read them.
package limits
