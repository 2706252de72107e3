package upstreams

import (
	"time"
)

const (
	// patience ends a wait for what must come; nothing passes because of it.
	patience = 3 * time.Minute
	// requestTimeout is longer than any failure here should take to be noticed.
	requestTimeout = time.Minute
	pollEvery      = 20 * time.Millisecond
)
