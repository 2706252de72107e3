// Package admin serves the operators' port: health, readiness, metrics, the status page, flags and profiles. The port
// needs no credentials, so it refuses requests that another site causes in somebody's browser.
//
//   - port.go: the paths; guard.go: the checks and bounds before them
//   - ready.go: the checks of /readyz
//   - status.go: the content of the status page; source.go reads it, and page.go writes it
//   - metrics.go: metrics of state, which are read at each scrape
package admin
