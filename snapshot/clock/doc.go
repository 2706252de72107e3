// Package clock says how old something is, whatever the machine and its clocks did meanwhile, and
// when the upstream may have become another one since.
package clock
