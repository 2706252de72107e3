package policy

import (
	"net/url"
	"strconv"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// After is what a watch from a revision asks for: everything that happened after it.
const After Semantics = "after"

// WatchOptions are the parameters of a watch that a list does not have.
type WatchOptions struct {
	// SendInitialEvents is true, false, or empty if the client did not say. With true the watch begins
	// with the state: it is a streaming list.
	SendInitialEvents string
	// Bookmarks reports whether the client wants them.
	Bookmarks bool
	// Timeout is the time for which the watch should last; with 0 the server chooses.
	Timeout time.Duration
}

// maxWatchTimeout is the longest timeout of a watch that is answered from memory.
const maxWatchTimeout = 24 * time.Hour

// asksToWatch reads the watch parameter: whether the request is a watch, and whether that is
// written in a usual way.
func asksToWatch(values url.Values) (watch, usual bool) {
	value, ok := values["watch"]
	if !ok {
		return false, true
	}
	yes, usual := parseBool(value[0])
	return yes, !yes || usual && len(value) == 1
}

// setWatchParameter is setParameter for a watch.
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
		seconds, ok := parseDecimal(value)
		r.WatchOptions.Timeout = time.Duration(min(seconds, 1<<32)) * time.Second // #nosec G115 -- bounded
		return ok && r.WatchOptions.Timeout <= maxWatchTimeout
	case "continue":
		return false // with other parameters kube-apiserver refuses it, or not
	}
	return r.setParameter(name, value)
}

// decideWatch maps the options of a watch to semantics as kube-apiserver does, where it has
// streaming lists (k8s.io/apiserver: storage/cacher, and apimachinery's internalversion defaults
// and validation). What it does not understand is forwarded: with sendInitialEvents,
// resourceVersionMatch must be NotOlderThan; without, it must be empty.
//
//	resourceVersion  sendInitialEvents    begins with
//	none or "0"      not given, or true   the state
//	none or "0"      false                the next event
//	N                true                 the state at N or later
//	N                not given, or false  the events after N
func decideWatch(o ListOptions, w WatchOptions) Decision {
	revision, isRevision := parseDecimal(o.ResourceVersion)
	said := w.SendInitialEvents != ""
	switch {
	case said != (o.ResourceVersionMatch == matchNotOlderThan), !said && o.ResourceVersionMatch != "":
		return forward(reason.NotCanonical)
	case o.ResourceVersion == "":
		return Decision{Serve: true, Semantics: Consistent, Initial: w.SendInitialEvents != "false"}
	case o.ResourceVersion == "0":
		return Decision{Serve: true, Semantics: Any, Initial: w.SendInitialEvents != "false"}
	case !isRevision:
		return forward(reason.NotCanonical)
	case w.SendInitialEvents == "true":
		return Decision{Serve: true, Semantics: NotOlderThan, Revision: revision, Initial: true}
	}
	return Decision{Serve: true, Semantics: After, Revision: revision}
}
