package policy

import (
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy/reason"
)

// parseQuery reads the query of a list or a watch into req. If it returns a reason to forward the request, it has set only
// req.Watch.
//
// It is stricter than the API server, and forwards what it refuses. The API server uses the first of several values, ignores
// unknown parameters, and drops parameters that it cannot unescape.
func parseQuery(raw string, req *Request) reason.Reason {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return reason.NotCanonical
	}
	// The parameter watch is read first (watch.go), since it decides which other parameters are known.
	watch, why := readWatchParameter(values)
	req.Watch = watch
	if why != reason.None {
		return why
	}
	parsed := *req // a copy, since req must stay as it is if a parameter is refused
	setParameter := parsed.setListParameter
	if watch {
		setParameter = parsed.setWatchParameter
	}
	for name, given := range values {
		isAccepted := setParameter(name, given[0])
		if !isAccepted || len(given) > 1 {
			return reason.NotCanonical
		}
	}
	// If the name of the parameter pretty is escaped, as in pr%65tty=1, it has no effect on the API server, which searches the
	// raw query for "pretty".
	if values.Has("pretty") && !strings.Contains(raw, "pretty") {
		return reason.NotCanonical
	}
	*req = parsed
	return reason.None
}

// setListParameter checks one query parameter of a list, and sets the parameter's field of r, if it has one. It returns false
// if the request must be forwarded: the parameter is unknown, or kube-apiserver may refuse the value or read it differently.
//
// Like the API server, setListParameter accepts empty strings, and refuses empty numbers. Unlike the API server, it refuses
// empty booleans (see parseBool).
func (r *Request) setListParameter(name, value string) bool {
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
		r.Options.Limit = int64(limit) // #nosec G115 -- parseDecimal returns nothing above MaxInt64
		return ok
	case "timeout":
		// The timeout is the request's deadline at the API server; 0 means the default. listproxy answers without a deadline,
		// so requests with a timeout below a second are forwarded.
		timeout, err := time.ParseDuration(value)
		return err == nil && (timeout == 0 || timeout >= time.Second)
	case "timeoutSeconds":
		// This is a parameter of watches. In a list, the API server ignores a number, and refuses any other value.
		_, ok := parseDecimal(value)
		return ok
	case "watch":
		// The Java client sends watch=false with its lists.
		watch, ok := parseBool(value)
		return ok && !watch
	case "allowWatchBookmarks":
		// This is a parameter of watches. In a list the API server ignores it.
		_, ok := parseBool(value)
		return ok
	case "pretty":
		r.Pretty = parsePretty(value, r.Pretty)
	default:
		return false
	}
	return true
}

// parseBool returns the boolean that the API server reads from a parameter: false for "0" and "false" (in upper or lower case),
// true for anything else. isUsual reports whether the spelling is one that clients use. (The Python client writes True.) A
// request with any other spelling, such as "yes", must be forwarded.
func parseBool(value string) (read, isUsual bool) {
	switch value {
	case "true", "True", "TRUE", "1":
		return true, true
	case "false", "False", "FALSE", "0":
		return false, true
	}
	return !strings.EqualFold(value, "false"), false
}

// parseDecimal parses a number in its canonical spelling: decimal digits without a sign or leading zeros. ok is false for any
// other text, and for a number above MaxInt64.
func parseDecimal(text string) (number uint64, ok bool) {
	number, err := strconv.ParseUint(text, 10, 63)
	hasLeadingZero := len(text) > 1 && text[0] == '0'
	return number, err == nil && !hasLeadingZero
}
