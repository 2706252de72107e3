// Package checks remembers what self-checks of collections found, and says for how long nothing is
// to be kept of a resource whose checks find one difference after the other. It checks nothing.
package checks
