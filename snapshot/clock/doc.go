// Package clock says how old something is, even if the machine was suspended or its clock was set
// meanwhile, and whether so much time has passed that the upstream may have been replaced.
package clock
