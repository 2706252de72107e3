package faults

import (
	"time"
)

const (
	// patience ends a wait for what must come; nothing passes because of it. After a long absence
	// of the API server listproxy's own streams wait up to 45 seconds before they try again.
	patience = 3 * time.Minute
	// requestTimeout is what a client here gives a request. A forward to a server that stands still
	// would take as long as that.
	requestTimeout = 10 * time.Second
	pollEvery      = 20 * time.Millisecond
)
