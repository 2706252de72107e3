package policy

import (
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// WatchOptions are the parameters of a watch that a list does not have.
type WatchOptions struct {
	// SendInitialEvents is "true", "false", or empty if the client did not give the parameter. With "true" the watch is a
	// streaming list: it begins with the state.
	SendInitialEvents string
	// Bookmarks reports whether the client wants bookmarks.
	Bookmarks bool
	// Timeout is the time after which the watch should end; if it is 0, the server chooses.
	Timeout time.Duration
}

// maxWatchTimeout is the longest timeout of a watch that is answered from memory.
const maxWatchTimeout = 24 * time.Hour

// readWatchParameter reports whether the request is a watch, and if so, whether the parameter watch is given once and in a
// usual spelling. For a list, usual is true: setListParameter checks the spelling.
func readWatchParameter(query url.Values) (watch, usual bool) {
	values, found := query["watch"]
	if !found {
		return false, true
	}
	watch, usual = parseBool(values[0]) // the API server reads the first value
	if !watch {
		return false, true
	}
	return true, usual && len(values) == 1
}

// setWatchParameter sets the field for one query parameter of a watch, if any. It returns false if the watch must be
// forwarded, since kube-apiserver may refuse the value or read it differently.
func (r *Request) setWatchParameter(name, value string) bool {
	switch name {
	case "watch":
		return true // readWatchParameter has checked it
	case "allowWatchBookmarks":
		bookmarks, usual := parseBool(value)
		r.WatchOptions.Bookmarks = bookmarks
		return usual
	case "sendInitialEvents":
		send, usual := parseBool(value)
		r.WatchOptions.SendInitialEvents = strconv.FormatBool(send)
		return usual
	case "timeoutSeconds":
		seconds, ok := parseDecimal(value)
		if !ok || seconds > uint64(maxWatchTimeout/time.Second) {
			return false
		}
		r.WatchOptions.Timeout = time.Duration(seconds) * time.Second // #nosec G115 -- bounded
		return true
	case "continue":
		return false // kube-apiserver refuses it or not, depending on the other parameters
	}
	return r.setListParameter(name, value)
}

// decideWatch maps the options of a watch to semantics as a kube-apiserver with streaming lists does (k8s.io/apiserver:
// storage/cacher, and apimachinery's internalversion defaults and validation). resourceVersionMatch must be NotOlderThan
// if sendInitialEvents is given, and empty if not. A watch with other options is forwarded.
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
		return Decision{Semantics: Consistent, Initial: initial}
	case o.ResourceVersion == "0":
		return Decision{Semantics: Any, Initial: initial}
	case !isRevision:
		return forward(reason.NotCanonical)
	case w.SendInitialEvents == "true":
		return Decision{Semantics: NotOlderThan, Revision: revision, Initial: true}
	}
	return Decision{Semantics: After, Revision: revision}
}
