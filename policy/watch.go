package policy

import (
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// After is the semantics of a watch from a revision: it asks for all changes after that revision.
const After Semantics = "after"

// WatchOptions are the parameters of a watch that a list does not have.
type WatchOptions struct {
	// SendInitialEvents is "true", "false", or empty if the client did not give it. With "true" the watch is a streaming
	// list: it begins with the state.
	SendInitialEvents string
	// Bookmarks reports whether the client wants them.
	Bookmarks bool
	// Timeout is the time for which the watch should last; with 0 the server chooses.
	Timeout time.Duration
}

// maxWatchTimeout is the longest timeout of a watch that is answered from memory.
const maxWatchTimeout = 24 * time.Hour

// asksToWatch reads the watch parameter. It reports whether the request is a watch, and whether that is written in a
// usual way. (A request that is no watch is checked with its other parameters.)
func asksToWatch(query url.Values) (watch, usual bool) {
	values, found := query["watch"]
	if !found {
		return false, true
	}
	watch, usual = parseBool(values[0])
	if !watch {
		return false, true
	}
	return true, usual && len(values) == 1
}

// setWatchParameter checks one query parameter of a watch and keeps what matters. It returns false if the request must
// be forwarded: the parameter is unknown, or its value is not canonical.
func (r *Request) setWatchParameter(name, value string) bool {
	switch name {
	case "watch":
		return true
	case "allowWatchBookmarks":
		yes, usual := parseBool(value)
		r.WatchOptions.Bookmarks = yes
		return usual
	case "sendInitialEvents":
		yes, usual := parseBool(value)
		r.WatchOptions.SendInitialEvents = strconv.FormatBool(yes)
		return usual
	case "timeoutSeconds":
		const noOverflow = 1 << 32 // so many seconds are above maxWatchTimeout, and fit a Duration
		seconds, ok := parseDecimal(value)
		r.WatchOptions.Timeout = time.Duration(min(seconds, noOverflow)) * time.Second // #nosec G115 -- bounded
		return ok && r.WatchOptions.Timeout <= maxWatchTimeout
	case "continue":
		return false // whether kube-apiserver refuses it depends on the other parameters
	}
	return r.setParameter(name, value)
}

// decideWatch maps the options of a watch to semantics as a kube-apiserver with streaming lists does (k8s.io/apiserver:
// storage/cacher, and apimachinery's internalversion defaults and validation). If sendInitialEvents is given,
// resourceVersionMatch must be NotOlderThan; if not, it must be empty. All else is forwarded.
//
//	resourceVersion  sendInitialEvents    semantics     begins with
//	none             not given, or true   Consistent    the newest state
//	none             false                Consistent    the next event
//	"0"              not given, or true   Any           the state, of any age
//	"0"              false                Any           the next event
//	N                true                 NotOlderThan  the state at N or later
//	N                not given, or false  After         the events after N
func decideWatch(o ListOptions, w WatchOptions) Decision {
	wantMatch := ""
	if w.SendInitialEvents != "" {
		wantMatch = matchNotOlderThan
	}
	initial := w.SendInitialEvents != "false"
	revision, isRevision := parseDecimal(o.ResourceVersion)
	switch {
	case o.ResourceVersionMatch != wantMatch:
		return forward(reason.NotCanonical)
	case o.ResourceVersion == "":
		return Decision{Serve: true, Semantics: Consistent, Initial: initial}
	case o.ResourceVersion == "0":
		return Decision{Serve: true, Semantics: Any, Initial: initial}
	case !isRevision:
		return forward(reason.NotCanonical)
	case w.SendInitialEvents == "true":
		return Decision{Serve: true, Semantics: NotOlderThan, Revision: revision, Initial: true}
	}
	return Decision{Serve: true, Semantics: After, Revision: revision}
}
