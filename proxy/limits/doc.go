// Package limits bounds requests and connections, and shares the bounds fairly between callers, as kube-apiserver does:
// short requests wait for their turn, long-running ones beyond a total are refused, and the bytes of large answers are held
// until their clients have read them.
//
//   - limits.go: the bounds of the process, one Limiter each
//   - limiter.go: how a Limiter shares its capacity
//   - connections.go: the bound of open connections
package limits
