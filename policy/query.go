package policy

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// parseQuery reads the query of a list or a watch into req. If it returns a Reason, only Watch is set.
//
// It is stricter than the API server, which takes the first of several values,
// ignores parameters it does not know and drops what it cannot unescape.
func parseQuery(raw string, req *Request) reason.Reason {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return reason.NotCanonical
	}
	// The watch parameter comes first: a watch has parameters that a list does not know.
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
			return reason.NotCanonical
		}
	}
	if values.Has("pretty") && !strings.Contains(raw, "pretty") {
		return reason.NotCanonical // the API server looks for the name in the raw query, so an escaped one has no effect
	}
	*req = parsed
	return reason.None
}

// setParameter checks one query parameter of a list and keeps what matters. It returns false if the request must be
// forwarded: the parameter is unknown, or its value is not canonical.
//
// To the API server an empty value is an unset parameter if it expects a string, and an error if it expects a number.
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
	case "shardSelector":
		var ok bool
		r.Shards, ok = parseShards(value)
		return ok
	case "limit":
		limit, ok := parseDecimal(value)
		if !ok {
			return false
		}
		r.Options.Limit = int64(limit) // #nosec G115 -- parseDecimal gives nothing above MaxInt64
	case "timeout":
		// It is the request's deadline upstream; zero is the server's default. Only the upstream can keep a very short one.
		timeout, err := time.ParseDuration(value)
		return err == nil && (timeout == 0 || timeout >= time.Second)
	case "timeoutSeconds":
		// A list ignores this parameter of watches, but is refused if it is not a number.
		_, ok := parseDecimal(value)
		return ok
	case "watch":
		// The Java client sends watch=false with its lists.
		yes, usual := parseBool(value)
		return usual && !yes
	case "allowWatchBookmarks":
		// A list ignores this parameter of watches.
		_, usual := parseBool(value)
		return usual
	case "pretty":
		r.Pretty = readPretty(value, r.Pretty)
	default:
		return false
	}
	return true
}

// parseBool reads a boolean parameter. It returns the value that the API server reads, and reports whether a usual client
// writes it so. (The Python client begins with a capital letter.) The API server reads everything as true except "0" and
// "false" in any case.
func parseBool(value string) (yes, usual bool) {
	switch value {
	case "true", "True", "TRUE", "1":
		return true, true
	case "false", "False", "FALSE", "0":
		return false, true
	}
	return !strings.EqualFold(value, "false"), false
}

// parseDecimal reads a number in its one canonical spelling: decimal digits, no
// sign, no leading zeros, no larger than the largest int64.
func parseDecimal(s string) (uint64, bool) {
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err == nil && (s == "0" || s[0] != '0')
}
