package policy

import (
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// WatchOptions are the parameters that only a watch has.
type WatchOptions struct {
	// SendInitialEvents is "true", "false", or empty if the client did not give the parameter. With "true" the watch is a
	// streaming list, which begins with the state.
	SendInitialEvents string
	// Bookmarks reports whether the client wants bookmarks.
	Bookmarks bool
	// Timeout is the time after which the watch should end; 0 means that the server chooses.
	Timeout time.Duration
}

// decideWatch maps the options of a watch to semantics as a kube-apiserver with streaming lists does (k8s.io/apiserver:
// storage/cacher, and apimachinery's internalversion defaults and validation). resourceVersionMatch must be NotOlderThan if
// sendInitialEvents is given (true or false), and empty if it is not. Watches with other options are forwarded.
//
//	resourceVersion  sendInitialEvents    semantics     begins with
//	""               not given, or true   Consistent    the newest state
//	""               false                Consistent    the next event
//	"0"              not given, or true   Any           the state, of any age
//	"0"              false                Any           the next event
//	N                true                 NotOlderThan  the state at N or later
//	N                not given, or false  After         the events after N
func decideWatch(o ListOptions, w WatchOptions) Decision {
	requiredMatch := ""
	if w.SendInitialEvents != "" {
		requiredMatch = matchNotOlderThan
	}
	initial := w.SendInitialEvents != "false" // true, or not given
	revision, isRevision := parseDecimal(o.ResourceVersion)
	switch { // the first case that applies
	case o.ResourceVersionMatch != requiredMatch:
		return forward(reason.NotCanonical)
	case o.ResourceVersion == "":
		return Decision{Semantics: Consistent, Initial: initial}
	case o.ResourceVersion == "0":
		return Decision{Semantics: Any, Initial: initial}
	case !isRevision:
		return forward(reason.NotCanonical)
	case w.SendInitialEvents == "true":
		return Decision{Semantics: NotOlderThan, Revision: revision, Initial: true}
	}
	return Decision{Semantics: After, Revision: revision} // sendInitialEvents is false or not given
}

// readWatchParameter reads the parameter watch, which makes a list request a watch. A watch must be forwarded if the parameter
// is given twice, or in a spelling that clients do not use: then watch is true, and why is reason.Watch. For a list, why is
// None, since setListParameter checks the parameter.
func readWatchParameter(query url.Values) (watch bool, why reason.Reason) {
	values := query["watch"]
	if len(values) == 0 {
		return false, reason.None
	}
	watch, isUsual := parseBool(values[0]) // the API server reads the first value
	if watch && (!isUsual || len(values) > 1) {
		return true, reason.Watch
	}
	return watch, reason.None
}

// setWatchParameter checks one query parameter of a watch, and sets its field, if there is one. Like setListParameter, it
// returns false if the request must be forwarded.
func (r *Request) setWatchParameter(name, value string) bool {
	switch name {
	case "watch":
		return true // readWatchParameter has checked it
	case "allowWatchBookmarks":
		bookmarks, ok := parseBool(value)
		r.WatchOptions.Bookmarks = bookmarks
		return ok
	case "sendInitialEvents":
		send, ok := parseBool(value)
		r.WatchOptions.SendInitialEvents = strconv.FormatBool(send)
		return ok
	case "timeoutSeconds":
		const maxTimeout = 24 * time.Hour // a longer watch is forwarded
		seconds, ok := parseDecimal(value)
		if !ok || seconds > uint64(maxTimeout/time.Second) {
			return false
		}
		r.WatchOptions.Timeout = time.Duration(seconds) * time.Second // #nosec G115 -- bounded
		return true
	case "continue":
		return false // whether kube-apiserver refuses it depends on the other parameters
	}
	return r.setListParameter(name, value)
}
