// Package admin is the port for operators: health, readiness, metrics, the status page, flags and
// profiles. It needs no credentials, so it refuses requests that another site causes in somebody's
// browser.
//
//   - port.go: what is at which path; guard.go: who may read it, and how many at a time
//   - ready.go: whether clients should come
//   - status.go: what the status page says; source.go: where that is read; page.go: how it is written
//   - metrics.go: metrics of state, read when somebody scrapes
package admin
