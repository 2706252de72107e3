package analyze

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/policy/reason"
	"github.com/listproxy/listproxy/proxy/kubehttp"
)

// accessLine is a line of listproxy's access log. Its fields are those of package observe.
type accessLine struct {
	Level       string        `json:"level"`
	Message     string        `json:"msg"`
	Time        time.Time     `json:"time"`
	Target      string        `json:"target"`
	Code        int           `json:"code"`
	Bytes       int64         `json:"bytes"`
	Duration    time.Duration `json:"duration"`
	UserAgent   string        `json:"-"` // see parseJSON
	Watch       bool          `json:"watch"`
	CacheStatus string        `json:"cacheStatus"`
}

// parseAccessText reads a line of listproxy's log as text: key=value, where a value may be quoted.
// It is not ok if the line is not written so.
func parseAccessText(line string) (a accessLine, ok bool) {
	for line != "" {
		key, rest, found := strings.Cut(line, "=")
		if !found || key == "" || strings.ContainsAny(key, "\" ") {
			return a, false
		}
		var value string
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return a, false
			}
			value, _ = strconv.Unquote(quoted) // it cannot fail for a quoted prefix
			rest = strings.TrimPrefix(rest[len(quoted):], " ")
		} else {
			value, rest, _ = strings.Cut(rest, " ")
		}
		a.set(key, value)
		line = rest
	}
	return a, a.Message != ""
}

// set takes in a value. Whatever cannot be read is as if it were not there.
func (a *accessLine) set(key, value string) {
	switch key {
	case "level":
		a.Level = value
	case "msg":
		a.Message = value
	case "time":
		a.Time, _ = time.Parse(time.RFC3339Nano, value)
	case "target":
		a.Target = value
	case "code":
		a.Code, _ = strconv.Atoi(value)
	case "bytes":
		a.Bytes, _ = strconv.ParseInt(value, 10, 64)
	case "duration":
		a.Duration, _ = time.ParseDuration(value)
	case "userAgent":
		a.UserAgent = value
	case "watch":
		a.Watch = value == "true"
	case "cacheStatus":
		a.CacheStatus = value
	}
}

// isRequest says whether the line is of a request at all, and not one of the log's other lines.
func (a accessLine) isRequest() bool { return a.Level == "ACCESS" && a.Message == "request" }

// request is the list or watch that the line is of; not ok if it is of something else.
func (a accessLine) request() (request, bool) {
	words := strings.Fields(a.Target) // verb, resource, version and group, if it has one
	if len(words) < 3 || words[0] != "list" && words[0] != "watch" || a.CacheStatus == "" {
		return request{}, false
	}
	group := ""
	if len(words) > 3 {
		group = words[len(words)-1]
	}
	r := request{
		client: clientOf(a.UserAgent, ""), resource: resourceName(group, words[1]),
		at: a.Time, took: a.Duration, bytes: a.Bytes,
	}
	r.verdict = a.verdict()
	if r.verdict.kind == kindWatch {
		r.took = 0
	}
	return r, true
}

// verdict says what was decided: the line has it as the client was told.
func (a accessLine) verdict() verdict {
	hit, word := kubehttp.ReadCacheStatus(a.CacheStatus)
	if word = knownWord(hit, word); word == formUnknown {
		hit = false
	}
	why := reason.Reason(word)
	if !hit && !succeeded(a.Code) {
		why = whyRefused
	}
	if a.Watch || why == reason.Watch {
		return watchVerdict(hit, why)
	}
	switch newest := word == string(policy.MostRecent); { // a list's form and a reason have one word
	case why == whyRefused:
	case newest:
		return verdict{kind: kindList, form: word, by: withConsistentLists}
	case hit:
		return verdict{kind: kindList, form: word, by: byMemory}
	}
	// The query is not in the log, and so neither is what was asked for.
	return verdict{kind: kindList, form: formUnknown, by: byAPIServer, why: why}
}

// knownWord is a word of listproxy's Cache-Status, or formUnknown for any other: there are few of
// them, whatever a file has.
func knownWord(hit bool, word string) string {
	known := reason.Reason(word).Explain() != ""
	if hit {
		forms := []policy.Semantics{policy.Any, policy.NotOlderThan, policy.Exact, policy.Continue, policy.MostRecent, policy.After}
		known = slices.Contains(forms, policy.Semantics(word))
	}
	if !known {
		return formUnknown
	}
	return word
}

// watchVerdict says what was decided about a watch; detail is of an answer from memory, or the
// reason.
func watchVerdict(hit bool, detail reason.Reason) verdict {
	switch {
	case hit && detail != reason.Reason(policy.After):
		return verdict{kind: kindWatch, form: formStreaming, by: withWatches}
	case hit, detail == reason.Watch:
		return verdict{kind: kindWatch, form: formWatch, by: withWatches}
	}
	return verdict{kind: kindWatch, form: formUnknown, by: byAPIServer, why: detail}
}
