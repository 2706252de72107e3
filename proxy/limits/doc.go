// Package limits bounds requests and connections, and shares the bounds fairly between callers, as kube-apiserver does:
// short requests wait for their turn, long-running ones beyond a total are refused, and the bytes of large answers count
// until their clients have read them.
package limits
