// Package admin is the port for operators: health, readiness, metrics, the status page, flags and
// profiles. It needs no credentials, so it refuses requests that another site causes in somebody's
// browser.
//
//   - port.go: what is at which path
//   - ready.go: whether clients should come
//   - guard.go: who may read it, and how many at a time
//   - pages.go, flagz.go: profiles and flags
//   - statuspage*.go: the content of the status page
//   - metrics_*.go: metrics of state, read when somebody scrapes
package admin
