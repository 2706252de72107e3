// Package clock measures how old something is, even if the machine was suspended, its clock was set, or no API server
// answered in the meantime.
package clock
