// Package clock says how old something is, even if the machine was suspended, its clock was set, or no API server
// answers meanwhile.
package clock
