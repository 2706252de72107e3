package analyze

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditEvent has those fields of an audit event that matter here. Into an [auditv1.Event] whole lists would be decoded
// if the audit level is RequestResponse.
type auditEvent struct {
	Kind       string        `json:"kind"`
	APIVersion string        `json:"apiVersion"`
	Stage      auditv1.Stage `json:"stage"`
	RequestURI string        `json:"requestURI"`
	Verb       string        `json:"verb"`
	User       struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	ObjectRef struct {
		Resource string `json:"resource"`
		Group    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject *object   `json:"responseObject"`
	Received       time.Time `json:"requestReceivedTimestamp"`
	At             time.Time `json:"stageTimestamp"`
}

// object says whether the answer in an event is a table. Only events of the level RequestResponse have an answer.
type object struct{ table bool }

// UnmarshalJSON implements [json.Unmarshaler]. It keeps nothing else of the object.
func (o *object) UnmarshalJSON(data []byte) error {
	o.table = bytes.Contains(data[:min(len(data), 256)], []byte(`"Table"`))
	return nil
}

// isEvent reports whether the JSON that was decoded is an audit event.
func (e *auditEvent) isEvent() bool {
	return e.Kind == "Event" && strings.HasPrefix(e.APIVersion, auditv1.GroupName+"/") &&
		e.RequestURI != "" && e.Stage != ""
}

// counts reports whether the event counts: it is of a list or watch, and of a stage at which these are counted. A list
// has one such event: kube-apiserver writes it when the list has ended, listproxy before it begins. A watch may have
// two, when it begins and when it ends, see [row].
//
// Requests of kube-apiserver to itself and of listproxy for itself do not count, since they never come through
// listproxy.
func (e *auditEvent) counts() bool {
	if e.User.Username == user.APIServerUser || strings.HasPrefix(e.UserAgent, "listproxy/") {
		return false
	}
	stage := e.Stage == auditv1.StageResponseStarted || e.Stage == auditv1.StageResponseComplete
	return stage && (e.Verb == "list" || e.Verb == "watch")
}

// count adds the list or watch of the event to t.
func (e *auditEvent) count(t *tally, j *judge) {
	if year := e.Received.UTC().Year(); year < 1970 || year > 2200 { // the log has no sensible time
		e.Received = time.Time{}
	}
	key := rowKey{
		client:   newClient(e.UserAgent, e.User.Username),
		resource: resourceName(e.ObjectRef.Group, e.ObjectRef.Resource),
		verdict:  j.verdict(e),
	}
	var took time.Duration
	if key.verdict.kind == kindList && !e.Received.IsZero() {
		took = max(0, e.At.Sub(e.Received))
	}
	t.add(key, e.Stage == auditv1.StageResponseStarted && e.Verb == "watch", e.Received, took)
}

const (
	// acceptTable is the Accept header of kubectl get.
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io," +
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	// kubectlPage is the limit in lists of kubectl get. Few other commands of kubectl have it.
	kubectlPage = "limit=500"
)

// httpRequest returns the request of the event. Of its headers the event has only the User-Agent, so the others are
// assumed: the request asks for JSON, or for a table if kubectl get seems to have sent it.
func (e *auditEvent) httpRequest() (*http.Request, bool) {
	u, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return nil, false
	}
	r := &http.Request{
		Method: http.MethodGet, URL: u, RequestURI: e.RequestURI,
		Header: http.Header{"User-Agent": {e.UserAgent}},
	}
	if e.asksForTable() {
		r.Header["Accept"] = []string{acceptTable}
	}
	return r, true
}

// asksForTable reports whether the answer was a table, or is likely to have been.
func (e *auditEvent) asksForTable() bool {
	if e.ResponseObject != nil {
		return e.ResponseObject.table
	}
	return strings.HasPrefix(e.UserAgent, "kubectl") && strings.Contains(e.RequestURI, kubectlPage)
}

// anonymous reports whether the caller had no credentials.
func (e *auditEvent) anonymous() bool { return e.User.Username == user.Anonymous }

// maxWrapped is how deep an event may be wrapped in objects, lists and texts.
const maxWrapped = 8

// eachEvent calls take for every event in a line, and reports whether there is one. Exporters of logs write an event
// inside an object, a list, or a string that is JSON itself. Before the JSON there may be words, such as a time, and
// after it more JSON.
func eachEvent(line []byte, take func(*auditEvent)) bool { return eachEventIn(line, 0, take) }

func eachEventIn(text []byte, depth int, take func(*auditEvent)) (found bool) {
	begin := bytes.IndexAny(text, "{[")
	if begin < 0 || !mayHave(text, depth) {
		return false
	}
	if takeEvent(text[begin:], take) { // nearly every line is a plain event; the decoder below would double the time
		return true
	}
	values := json.NewDecoder(bytes.NewReader(text[begin:]))
	for {
		var value json.RawMessage
		if values.Decode(&value) != nil { // the end, or something that is not JSON
			return found
		}
		found = unwrap(value, depth, take) || found
	}
}

// unwrap calls take for every event in a value, and reports whether there is one.
func unwrap(value json.RawMessage, depth int, take func(*auditEvent)) (found bool) {
	if !mayHave(value, depth) {
		return false
	}
	var inside []json.RawMessage
	switch value[0] {
	case '{':
		if takeEvent(value, take) {
			return true
		}
		var members map[string]json.RawMessage
		_ = json.Unmarshal(value, &members) // the decoder has checked that it is JSON
		inside = slices.Collect(maps.Values(members))
	case '[':
		_ = json.Unmarshal(value, &inside)
	case '"':
		var text string
		_ = json.Unmarshal(value, &text)
		return eachEventIn([]byte(text), depth+1, take)
	}
	for _, v := range inside {
		found = unwrap(v, depth+1, take) || found
	}
	return found
}

// takeEvent calls take if the value is an event, and reports whether it is.
func takeEvent(value []byte, take func(*auditEvent)) bool {
	var e auditEvent
	if json.Unmarshal(value, &e) != nil || !e.isEvent() {
		return false
	}
	take(&e)
	return true
}

// mayHave reports whether there may be an event in a text at this depth.
func mayHave(text []byte, depth int) bool {
	return depth <= maxWrapped && bytes.Contains(text, []byte(auditv1.GroupName))
}
