package analyze

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditEvent is what is read of an event of audit.k8s.io/v1. It is not [auditv1.Event], which would
// decode whole lists, of level RequestResponse.
type auditEvent struct {
	Kind       string        `json:"kind"`
	Stage      auditv1.Stage `json:"stage"`
	RequestURI string        `json:"requestURI"`
	Verb       string        `json:"verb"`
	User       struct {
		Username string   `json:"username"`
		Groups   []string `json:"groups"`
	} `json:"user"`
	ImpersonatedUser *struct{} `json:"impersonatedUser"`
	UserAgent        string    `json:"-"` // see parseJSON
	ObjectRef        struct {
		Resource string `json:"resource"`
		Group    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	ResponseObject *object           `json:"responseObject"`
	Received       time.Time         `json:"requestReceivedTimestamp"`
	At             time.Time         `json:"stageTimestamp"`
	Annotations    map[string]string `json:"annotations"`
}

// object is an answer as an event holds it.
type object struct {
	bytes int64
	table bool
}

// UnmarshalJSON implements [json.Unmarshaler]. It keeps nothing of the object.
func (o *object) UnmarshalJSON(data []byte) error {
	head := data[:min(len(data), 256)]
	o.bytes, o.table = int64(len(data)), bytes.Contains(head, []byte(`"kind":"Table"`))
	return nil
}

// listproxyBytes is the annotation of listproxy's own audit log with the bytes of an answer.
const listproxyBytes = "listproxy.io/bytes"

// isEvent says whether a line is an audit event at all.
func (e *auditEvent) isEvent() bool { return e.Kind == "Event" && e.RequestURI != "" && e.Stage != "" }

// counts says whether the event is one of a list or watch that is counted: each list once, when it
// has ended. A watch is counted when it begins and when it ends, see [tally]. What kube-apiserver
// asks itself never comes to listproxy, and what listproxy asks for itself is not asked through it.
func (e *auditEvent) counts() bool {
	if e.User.Username == user.APIServerUser || strings.HasPrefix(e.UserAgent, "listproxy/") {
		return false
	}
	switch e.Stage {
	case auditv1.StageResponseComplete:
		return e.Verb == "list" || e.Verb == "watch"
	case auditv1.StageResponseStarted:
		return e.Verb == "watch"
	}
	return false
}

// request is the list or watch of an event that counts.
func (e *auditEvent) request(judge *judge) request {
	if year := e.Received.UTC().Year(); year < 1970 || year > 2200 { // nothing is known of it
		e.Received = time.Time{}
	}
	r := request{
		client:   clientOf(e.UserAgent, e.User.Username),
		resource: resourceName(e.ObjectRef.Group, e.ObjectRef.Resource),
		begun:    e.Stage == auditv1.StageResponseStarted,
		at:       e.Received,
		bytes:    -1,
	}
	r.verdict = judge.verdict(e)
	if r.verdict.kind == kindList && !e.Received.IsZero() {
		r.took = max(0, e.At.Sub(e.Received))
	}
	if e.ResponseObject != nil {
		r.bytes = e.ResponseObject.bytes
	}
	if written, err := strconv.ParseInt(e.Annotations[listproxyBytes], 10, 64); err == nil {
		r.bytes = written
	}
	return r
}

const (
	// acceptTable is what kubectl get accepts.
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	// kubectlPage is the limit with which kubectl get asks, and hardly anybody else of kubectl.
	kubectlPage = "limit=500"
)

// httpRequest is the request as it came, as far as the event tells. It has no headers but the
// User-Agent, so that what else matters is assumed: a token, JSON, and for kubectl get a table.
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
	if e.ImpersonatedUser != nil {
		r.Header["Impersonate-User"] = []string{"?"}
	}
	return r, true
}

// asksForTable says whether the answer was a table, or is likely to have been.
func (e *auditEvent) asksForTable() bool {
	if e.ResponseObject != nil {
		return e.ResponseObject.table
	}
	return strings.HasPrefix(e.UserAgent, "kubectl") && strings.Contains(e.RequestURI, kubectlPage)
}

// anonymous says whether the caller had no credentials.
func (e *auditEvent) anonymous() bool { return e.User.Username == user.Anonymous }

// caller is who asks, for rules that name callers.
func (e *auditEvent) caller() user.Info {
	return &user.DefaultInfo{Name: e.User.Username, Groups: e.User.Groups}
}

// parseJSON reads a line of either log in JSON.
func parseJSON(line []byte) (e auditEvent, a accessLine, err error) {
	var either struct {
		auditEvent
		accessLine
		// Both kinds of lines have one.
		UserAgent string `json:"userAgent"`
	}
	err = json.Unmarshal(line, &either)
	e, a = either.auditEvent, either.accessLine
	e.UserAgent, a.UserAgent = either.UserAgent, either.UserAgent
	return e, a, err
}
