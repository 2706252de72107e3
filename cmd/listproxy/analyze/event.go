package analyze

import (
	"bytes"
	"net/http"
	"net/url"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

// auditEvent has the fields of an audit event that matter here. [auditv1.Event] has more: it would decode whole lists if the
// audit level is RequestResponse.
type auditEvent struct {
	Kind       string        `json:"kind"`
	APIVersion string        `json:"apiVersion"`
	Stage      auditv1.Stage `json:"stage"`
	RequestURI string        `json:"requestURI"`
	Verb       verb          `json:"verb"`
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
	ResponseObject *responseObject `json:"responseObject"` // nil if the level is not RequestResponse
	Received       time.Time       `json:"requestReceivedTimestamp"`
	StageTime      time.Time       `json:"stageTimestamp"`
}

// responseObject is the answer in an event. Only the kind of the answer matters.
type responseObject struct{ isTable bool }

// UnmarshalJSON implements [json.Unmarshaler]. It does not decode the object, which can be large. The object counts as a table
// if "Table" is in its first bytes, where the kind is.
func (o *responseObject) UnmarshalJSON(data []byte) error {
	const headBytes = 256
	o.isTable = bytes.Contains(data[:min(len(data), headBytes)], []byte(`"Table"`))
	return nil
}

// isEvent reports whether the JSON that was decoded is an audit event.
func (e *auditEvent) isEvent() bool {
	return e.Kind == "Event" && strings.HasPrefix(e.APIVersion, auditv1.GroupName+"/") &&
		e.RequestURI != "" && e.Stage != ""
}

// isRelevant reports whether the event stands for an answered list or watch. A list has one relevant event: kube-apiserver
// writes it at the end (ResponseComplete), and listproxy at the start (ResponseStarted). A watch may have two (see [counter]).
//
// The requests that kube-apiserver and listproxy send for themselves are not relevant, since they never come through listproxy.
func (e *auditEvent) isRelevant() bool {
	if e.User.Username == user.APIServerUser || strings.HasPrefix(e.UserAgent, "listproxy/") {
		return false
	}
	isAnswered := e.Stage == auditv1.StageResponseStarted || e.Stage == auditv1.StageResponseComplete
	isListOrWatch := e.Verb == verbList || e.Verb == verbWatch
	return isAnswered && isListOrWatch
}

// receivedAt returns the time at which the request was received, and whether this time is plausible. A wrong year would stretch
// the period of the report, and a year above 9999 cannot be encoded as JSON.
func (e *auditEvent) receivedAt() (time.Time, bool) {
	year := e.Received.UTC().Year()
	return e.Received, year >= 1970 && year <= 2200
}

const (
	// acceptTable is the Accept header of kubectl get.
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io," +
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	// kubectlLimit is in the query of each list of kubectl get. Few other commands of kubectl set a limit.
	kubectlLimit = "limit=500"
)

// httpRequest returns the request of the event, or false if its URI is malformed. Events do not record the Accept header, so
// httpRequest assumes one: that of kubectl get if the request asked for a table (see wantsTable), and otherwise none, which
// means JSON.
func (e *auditEvent) httpRequest() (*http.Request, bool) {
	u, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return nil, false
	}
	r := &http.Request{
		Method: http.MethodGet, URL: u, RequestURI: e.RequestURI,
		Header: http.Header{"User-Agent": {e.UserAgent}},
	}
	if e.wantsTable() {
		r.Header["Accept"] = []string{acceptTable}
	}
	return r, true
}

// wantsTable reports whether the request asked for a table. If the event has the answer, the request asked for a table if the
// answer is one. Without the answer, kubectl get is assumed to have asked for a table, and every other client for JSON.
func (e *auditEvent) wantsTable() bool {
	if e.ResponseObject != nil {
		return e.ResponseObject.isTable
	}
	return strings.HasPrefix(e.UserAgent, "kubectl") && strings.Contains(e.RequestURI, kubectlLimit)
}
