package main

import (
	"fmt"
	"time"

	"github.com/listproxy/listproxy/proxy/discovery"
	"github.com/listproxy/listproxy/proxy/upstream"
)

// defaultSettle is the --upstream-settle where none is given.
const defaultSettle = 15 * time.Second

// anySettle lets --upstream-settle be shorter than is safe, if it is not empty. The linker sets it
// in what tests run (package test/harness), which look at what comes after a change of API servers:
// -ldflags "-X main.anySettle=yes". No flag and no variable of the environment does, so no
// listproxy that is released can be made to.
var anySettle string

// leastSettle is the shortest --upstream-settle that is safe. each: the API servers are asked one
// by one (--upstream).
func leastSettle(each bool) time.Duration {
	if each {
		return discovery.LeastSettle(upstream.SlowestCheck)
	}
	return discovery.LeastSettle(discovery.SlowestLook)
}

// heardWithin is how long, at most, nothing is heard of a change of the API servers.
func (o *options) heardWithin() time.Duration {
	if len(o.upstreams) > 0 {
		return upstream.SlowestNews
	}
	return discovery.SlowestNews
}

// checkSettle refuses an --upstream-settle that is over before two versions that serve at the same
// time are noticed again.
func (o *options) checkSettle() error {
	each := len(o.upstreams) > 0
	least, where := leastSettle(each), "without --upstream"
	if each {
		where = "with --upstream"
	}
	if anySettle != "" {
		least = 0
	}
	if o.settle < least {
		return fmt.Errorf("--upstream-settle %v is too short: lists could come from memory between two looks at API servers of different versions, "+
			"and mix what they write: give at least %v (%s), or leave it out (%v)", o.settle, least, where, defaultSettle)
	}
	return nil
}

// leastSettleUsage says in the help what is refused.
func leastSettleUsage() string {
	return fmt.Sprintf("at least %v, and with --upstream %v", leastSettle(false), leastSettle(true))
}
