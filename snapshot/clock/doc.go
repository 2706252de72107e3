// Package clock says how old something is, even if meanwhile the machine was suspended, its clock was set, or no API server
// answered.
package clock
