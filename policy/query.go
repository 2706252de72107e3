package policy

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// parseQuery reads the query of a list or a watch, and sets what it says in req. If it
// returns a Reason, only Watch is set.
//
// It is stricter than the API server, which takes the first of several values,
// ignores parameters it does not know and drops what it cannot unescape.
func parseQuery(raw string, req *Request) reason.Reason {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return reason.Parameter
	}
	// Before all others: a watch has parameters that a list does not know.
	watch, usual := asksToWatch(values)
	req.Watch = watch
	if !usual {
		return reason.Watch
	}
	parsed := *req
	set := parsed.setParameter
	if watch {
		set = parsed.setWatchParameter
	}
	for name, value := range values {
		if len(value) != 1 || !set(name, value[0]) {
			return reason.Parameter
		}
	}
	if values.Has("pretty") && !strings.Contains(raw, "pretty") {
		return reason.Parameter // escaped, the API server would not see it
	}
	*req = parsed
	return ""
}

// setParameter checks one query parameter and keeps what matters to a list. It
// returns false if the parameter is unknown or its value not canonical.
//
// The empty string is an unset parameter where the API server sees a string, and
// an error where it sees a number.
func (r *Request) setParameter(name, value string) bool {
	switch name {
	case "resourceVersion":
		r.Options.ResourceVersion = value
	case "resourceVersionMatch":
		r.Options.ResourceVersionMatch = value
	case "continue":
		r.Options.Continue = value
	case "labelSelector":
		r.LabelSelector = value
	case "fieldSelector":
		r.FieldSelector = value
	case "limit":
		limit, ok := parseDecimal(value)
		if !ok {
			return false
		}
		r.Options.Limit = int64(limit) // #nosec G115 -- parseDecimal gives nothing above MaxInt64
	case "timeout":
		// The request's deadline upstream; zero is the server's default. One that is about
		// to pass is the upstream's to keep.
		timeout, err := time.ParseDuration(value)
		return err == nil && (timeout == 0 || timeout >= time.Second)
	case "timeoutSeconds":
		// Of watches; lists ignore it, but refuse what is not a number.
		_, ok := parseDecimal(value)
		return ok
	case "allowWatchBookmarks":
		// Of watches; lists ignore it.
		return value == "true" || value == "false"
	case "pretty":
		r.Pretty = readPretty(value, r.Pretty)
	default:
		return false
	}
	return true
}

// isTrue reads a boolean parameter as the API server does: all is true but "0"
// and "false" in any case.
func isTrue(value string) bool {
	return value != "0" && !strings.EqualFold(value, "false")
}

// parseDecimal reads a number in its one canonical spelling: decimal digits, no
// sign, no leading zeros, no larger than the largest int64.
func parseDecimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && (s == "0" || s[0] != '0')
}
