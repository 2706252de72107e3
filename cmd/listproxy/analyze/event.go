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

// auditEvent has the fields of an audit event that matter here. It is smaller than [auditv1.Event], which would decode
// whole lists if the audit level is RequestResponse.
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

// responseObject is the answer in an event.
type responseObject struct{ isTable bool }

// UnmarshalJSON implements [json.Unmarshaler]. It does not decode the object, which can be large: the kind is among the
// first members.
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

// isCounted reports whether the event counts. It must be an event of a list or watch, at the stage ResponseStarted or
// ResponseComplete. A list has one such event: kube-apiserver writes it at the end, with the stage ResponseComplete,
// and listproxy at the start. A watch may have two, see [counter].
//
// Requests of kube-apiserver to itself and of listproxy for itself do not count, since they never come through
// listproxy.
func (e *auditEvent) isCounted() bool {
	if e.User.Username == user.APIServerUser || strings.HasPrefix(e.UserAgent, "listproxy/") {
		return false
	}
	hasStage := e.Stage == auditv1.StageResponseStarted || e.Stage == auditv1.StageResponseComplete
	hasVerb := e.Verb == verbList || e.Verb == verbWatch
	return hasStage && hasVerb
}

// addTo adds the event to t, under its prediction.
func (e *auditEvent) addTo(t *tally, p prediction) {
	received := e.Received
	if year := received.UTC().Year(); year < 1970 || year > 2200 { // no sensible time; JSON cannot have years over 9999
		received = time.Time{}
	}
	key := counterKey{prediction: p, rowKey: rowKey{
		client:   newClient(e.UserAgent, e.User.Username),
		resource: resourceName(e.ObjectRef.Group, e.ObjectRef.Resource),
	}}
	var duration time.Duration
	if e.Verb == verbList && !received.IsZero() {
		duration = max(0, e.StageTime.Sub(received))
	}
	atStart := e.Verb == verbWatch && e.Stage == auditv1.StageResponseStarted
	t.add(key, atStart, received, duration)
}

const (
	// acceptTable is the Accept header of kubectl get.
	acceptTable = "application/json;as=Table;v=v1;g=meta.k8s.io," +
		"application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
	// kubectlPage is the limit in lists of kubectl get. Few other commands of kubectl set it.
	kubectlPage = "limit=500"
)

// httpRequest returns the request of the event, or false if its URI is malformed. The only header in an event is the
// User-Agent. The request is assumed to ask for JSON, or for a table if kubectl get seems to have sent it.
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
		return e.ResponseObject.isTable
	}
	return strings.HasPrefix(e.UserAgent, "kubectl") && strings.Contains(e.RequestURI, kubectlPage)
}

// isAnonymous reports whether the caller had no credentials.
func (e *auditEvent) isAnonymous() bool { return e.User.Username == user.Anonymous }
