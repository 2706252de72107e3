// Package admin is the port for operators: health, readiness, metrics, the status page, flags and
// profiles. It needs no credentials, so it is kept from browsers that ask for somebody else.
//
//   - port.go: what is at which path
//   - guard.go: who may read it, and how many at a time
//   - pages.go: flags and profiles
//   - statuspage*.go: what the status page says
//   - metrics_*.go: metrics of state, read when somebody scrapes
package admin
