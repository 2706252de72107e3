package analyze

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// token is kube-apiserver's own for the pages after the first.
var token = policy.EncodeContinue(1234, "team-a/pod-1\x00")

// event is a line of kube-apiserver's audit log, of alice's program.
func event(uri string, change func(*auditv1.Event)) string {
	at := metav1.NewMicroTime(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	e := auditv1.Event{
		TypeMeta: metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"}, Level: auditv1.LevelMetadata, AuditID: "1",
		Stage: auditv1.StageResponseComplete, RequestURI: uri, Verb: "list", UserAgent: "tool/v1 (linux/amd64)",
		User:                     authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
		ObjectRef:                &auditv1.ObjectReference{Resource: "pods", APIVersion: "v1"},
		ResponseStatus:           &metav1.Status{Code: http.StatusOK},
		RequestReceivedTimestamp: at, StageTimestamp: metav1.NewMicroTime(at.Add(250 * time.Millisecond)),
	}
	if strings.Contains(uri, "watch") {
		e.Verb = "watch"
	}
	if change != nil {
		change(&e)
	}
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(line) + "\n"
}

func analyzed(t *testing.T, p *policy.Config, log string) Report {
	t.Helper()
	a := newAnalyzer(p)
	expect.NoError(t, a.readLog("log", strings.NewReader(log)))
	return a.report()
}

// TestForecast: what is said of one request of an audit log.
func TestForecast(t *testing.T) {
	for _, test := range []struct {
		uri    string
		change func(*auditv1.Event)
		want   string // form, who answers, and the reason
	}{
		{"/api/v1/pods?resourceVersion=0", nil, "any memory"},
		{"/api/v1/pods?resourceVersion=0&limit=500", nil, "any memory"},
		{"/api/v1/namespaces/a/pods?labelSelector=a%3Db&resourceVersion=12&resourceVersionMatch=NotOlderThan", nil, "not-older-than memory"},
		{"/api/v1/pods?resourceVersion=12&limit=5", nil, "exact memory"},
		{"/api/v1/pods?limit=5&continue=" + token, nil, "continue memory"},
		{"/api/v1/pods?limit=500", nil, "consistent consistent-lists"},
		{"/api/v1/pods", nil, "consistent consistent-lists"},
		{"/api/v1/secrets?resourceVersion=0", nil, "any kube-apiserver not-cached"},
		{"/api/v1/secrets", nil, "consistent kube-apiserver not-cached"},
		{"/api/v1/events", nil, "consistent kube-apiserver not-cached"},
		{"/apis/metrics.k8s.io/v1beta1/pods?resourceVersion=0", nil, "any kube-apiserver unknown-resource"},
		{"/api/v1/pods?resourceVersion=0&unheard=of", nil, "unknown kube-apiserver not-canonical"},
		{"/api/v1/pods?resourceVersion=0&resourceVersionMatch=Exact", nil, "unknown kube-apiserver not-canonical"},
		{"/api/v1/Pods?resourceVersion=0", nil, "unknown kube-apiserver not-canonical"},
		{"http://[", nil, "unknown kube-apiserver not-canonical"},
		{"/api/v1/pods?watch=true&resourceVersion=12", nil, "watch watches"},
		{"/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan", nil, "streaming-list watches"},
		{"/api/v1/pods?watch=true", nil, "streaming-list watches"},
		{"/api/v1/pods?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan", nil, "watch watches"},
		{"/api/v1/events?watch=true&resourceVersion=12", nil, "watch kube-apiserver not-cached"},
		{"/api/v1/watch/pods", nil, "unknown kube-apiserver watch"},
		{"/api/v1/pods?watch=true&resourceVersion=12&sendInitialEvents=true", nil, "unknown kube-apiserver not-canonical"},
		{"/api/v1/pods?watch=yes&resourceVersion=12", nil, "unknown kube-apiserver watch"},
		{"/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.ResponseStatus.Code = 403 }, "any kube-apiserver refused"},
		{"/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.User.Username = "system:anonymous" }, "any kube-apiserver credentials"},
		{"/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }, "any memory"},
		{"/api/v1/pods?watch=true", func(e *auditv1.Event) { e.User.Username = "system:anonymous" }, "streaming-list kube-apiserver credentials"},
		{"/api/v1/pods?watch=true", func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }, "streaming-list watches"},
		{"/api/v1/pods?limit=500", func(e *auditv1.Event) { e.UserAgent = "kubectl/v1.36.3" }, "consistent kube-apiserver representation"},
		{"/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.UserAgent = "kubectl/v1.36.3" }, "any memory"},
	} {
		t.Run(test.uri, func(t *testing.T) {
			r := analyzed(t, policy.DefaultConfig(), event(test.uri, test.change))
			if len(r.Rows) != 1 || len(r.Rows[0].Forms) != 1 {
				t.Fatalf("%+v", r)
			}
			f := r.Rows[0].Forms[0]
			expect.Same(t, test.want, strings.TrimSpace(fmt.Sprint(f.Form, " ", f.AnsweredBy, " ", f.Reason)))
		})
	}
}

// counts are what a report has of one log.
type counts struct {
	Lists, FromMemory, Watches, Others, Bad, TooLong int64
	Seconds                                          float64
}

var (
	oneList = counts{Lists: 1, FromMemory: 1, Seconds: 0.25}
	both    = counts{Lists: 1, FromMemory: 1, Watches: 1, Seconds: 0.25}
)

// TestCounts: what is counted of a log, in whatever an exporter wraps around the events, and how long it
// took.
func TestCounts(t *testing.T) {
	const listURI, watchURI = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=true&resourceVersion=12"
	list, watch := strings.TrimSuffix(event(listURI, nil), "\n"), strings.TrimSuffix(event(watchURI, nil), "\n")
	staged := func(uri string, stage auditv1.Stage) string {
		return event(uri, func(e *auditv1.Event) { e.Stage = stage })
	}
	opened := staged(watchURI, "RequestReceived") + staged(watchURI, "ResponseStarted")
	received := func(at string) string {
		return regexp.MustCompile(`("requestReceivedTimestamp":)"[^"]*"`).ReplaceAllString(event(listURI, nil), "${1}"+at)
	}
	answered := func(object string) string { // as with the level RequestResponse
		return strings.Replace(event(listURI, nil), `"requestReceivedTimestamp"`, `"responseObject":`+object+`,"requestReceivedTimestamp"`, 1)
	}
	text := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	sorted := func(s string) string { // the members in alphabetical order, as those write them who have read them
		var members map[string]any
		expect.NoError(t, json.Unmarshal([]byte(s), &members))
		b, _ := json.Marshal(members)
		return string(b)
	}
	for name, test := range map[string]struct {
		log  string
		want counts
	}{
		"all stages of lists, the last one of listproxy": {
			staged(listURI, "RequestReceived") + list + "\n" + staged(listURI, "ResponseStarted"),
			counts{Lists: 2, FromMemory: 2, Others: 1, Seconds: 0.5},
		},
		"all stages of watches, of which two go on": {opened + opened + opened + watch, counts{Watches: 3, Others: 3}},
		"only the ends of watches":                  {watch + "\n" + watch, counts{Watches: 2}},
		"kube-apiserver's own requests and listproxy's": {
			event(listURI, func(e *auditv1.Event) { e.User.Username = "system:apiserver" }) +
				event(listURI, func(e *auditv1.Event) { e.UserAgent = "listproxy/v1.0.0" }) + list,
			counts{Lists: 1, FromMemory: 1, Others: 2, Seconds: 0.25},
		},
		"nobody knows when it came": {received("null") + received(`"9999-12-31T23:59:59-23:00"`), counts{Lists: 2, FromMemory: 2}},
		"a list, a table, and neither": {
			answered(`{"kind":"PodList","items":[{"metadata":{"name":"`+strings.Repeat("x", 2*lineBuffer)+`"}}]}`) +
				answered(`{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`) + answered(`"skipped-too-big-size-object"`),
			counts{Lists: 3, FromMemory: 2, Seconds: 0.75},
		},
		"what cannot be read": {
			"no log\n" + list[:50] + "\n\n" + `{"kind":"Pod"}` + "\n" + `{"kind":7,"apiVersion":"audit.k8s.io/v1"}` + "\n[]\n" +
				`{"kind":"Event","apiVersion":"audit.k8s.io/v1"}` + "\n{audit.k8s.io\n" + list + "\n" + list,
			counts{Lists: 2, FromMemory: 2, Bad: 7, Seconds: 0.5},
		},
		"a line that is too long": {list + "\n" + strings.Repeat("x", maxLine+lineBuffer) + "\n" + list, counts{Lists: 2, FromMemory: 2, TooLong: 1, Seconds: 0.5}},
		"compressed, two in one":  {proxytest.GzipMember(list+"\n") + proxytest.GzipMember(list+"\n"+list), counts{Lists: 3, FromMemory: 3, Seconds: 0.75}},

		"EKS, exported to S3":        {"2026-11-20T10:00:00.000Z " + list, oneList},
		"EKS, aws logs tail":         {"2026-11-20T10:00:00+00:00 kube-apiserver-audit-0123 " + list, oneList},
		"EKS, a subscription":        {`{"messageType":"DATA_MESSAGE","logGroup":"/aws/eks/it/cluster","logEvents":[{"id":"1","timestamp":1,"message":` + text(list) + `},{"id":"2","message":` + text(watch) + `}]}`, both},
		"EKS, several in a line":     {`{"logEvents":[{"message":` + text(list) + `}]}{"logEvents":[{"message":` + text(watch) + `}]}`, both},
		"EKS, Logs Insights":         {`{"@timestamp":"2026-11-20 10:00:00.000","@message":` + sorted(list) + `}`, oneList},
		"EKS, a log shipper":         {`{"message":` + text(list) + `,"logGroup":"/aws/eks/it/cluster"}`, oneList},
		"AKS, a storage account":     {`{"time":"2026-11-20T10:00:00Z","category":"kube-audit","operationName":"Microsoft.ContainerService/managedClusters/diagnosticLogs/Read","properties":{"log":` + text(list) + `,"stream":"stdout","pod":"kube-apiserver-0"}}`, oneList},
		"AKS, an event hub":          {`{"records":[{"category":"kube-audit","properties":{"log":` + text(list+"\n") + `}},{"category":"kube-audit","properties":{"log":` + text(watch) + `}},{"category":"guard","properties":{"log":"x"}}]}`, both},
		"AKS, properties as text":    {`{"category":"kube-audit","properties":` + text(`{"log":`+text(list)+`}`) + `}`, oneList},
		"Cloud Logging, of any node": {`{"insertId":"1","jsonPayload":` + sorted(watch) + `,"resource":{"type":"k8s_cluster"}}`, counts{Watches: 1}},
		"kube-apiserver's webhook":   {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + list + `,` + watch + `]}`, both},
		"a container runtime":        {"2026-11-20T10:00:00.000000000Z stdout F " + list, oneList},
		"an array":                   {"[" + list + "," + watch + "]", both},
		"too deep":                   {strings.Repeat("[", maxWrapped+2) + list + strings.Repeat("]", maxWrapped+2) + "\n" + list, counts{Lists: 1, FromMemory: 1, Bad: 1, Seconds: 0.25}},
	} {
		t.Run(name, func(t *testing.T) {
			r := analyzed(t, policy.DefaultConfig(), test.log)
			f := r.Files[0]
			expect.Same(t, test.want, counts{r.Totals.Lists.Count, r.Totals.Lists.FromMemory, r.Totals.Watches.Count, f.Others, f.Bad, f.TooLong, r.Totals.Seconds})
			if r.Rows[0].UserAgent != "tool/v1" || r.Rows[0].User != "alice" || r.Rows[0].Resource != "pods" {
				t.Errorf("%+v", r.Rows[0])
			}
			_, err := json.Marshal(r)
			expect.NoError(t, err)
		})
	}
}

// TestPolicy: a rule of the policy counts before the switches.
func TestPolicy(t *testing.T) {
	p, err := policy.ParseConfig("p", []byte(`apiVersion: listproxy.io/v1alpha1
kind: Policy
resources:
- {group: "", resource: secrets, cache: onDemand}
- {group: "", resource: pods, consistentLists: true}
- {group: "", resource: nodes, consistentLists: false}
- {group: "", resource: configmaps, consistentLists: always}
`))
	expect.NoError(t, err)
	r := analyzed(t, p, event("/api/v1/secrets?resourceVersion=0", nil)+event("/api/v1/pods", nil)+
		event("/api/v1/configmaps", nil)+event("/api/v1/nodes", nil))
	expect.Same(t, Answers{Count: 4, FromMemory: 3, Forwarded: 1}, r.Totals.Lists)
}

// TestForeignLogs: what cannot be analyzed is an error that says what to do.
func TestForeignLogs(t *testing.T) {
	for name, test := range map[string]struct{ log, says string }{
		"Cloud Audit Logs": {
			`{"protoPayload":{"@type":"type.googleapis.com/google.cloud.audit.AuditLog","methodName":"io.k8s.core.v1.pods.list",` +
				`"resourceName":"core/v1/namespaces/default/pods","serviceName":"k8s.io"},"timestamp":"2026-11-20T10:00:00Z"}`,
			"Cloud Audit Logs of Google",
		},
		"Azure's table":           {`{"RequestUri":"/api/v1/pods","Verb":"list","Stage":"ResponseComplete","TimeGenerated":"2026-11-20T10:00:00Z"}`, "properties.log"},
		"an access log":           {"time=2026-11-20T10:00:00Z level=ACCESS msg=request target=\"list pods v1\"", "--audit-log-path"},
		"an access log in JSON":   {`{"time":"2026-11-20T10:00:00Z","level":"ACCESS","msg":"request","target":"list pods v1"}`, "--audit-log-path"},
		"JSON over several lines": {"[\n  {\n    \"kind\": \"Event\",\n    \"apiVersion\": \"audit.k8s.io/v1\"\n  }\n]\n", "jq -c"},
		"nothing":                 {"", "no audit event"},
		"no list":                 {event("/api/v1/namespaces/a/pods/b", func(e *auditv1.Event) { e.Verb = "get" }), "no list and no watch among its 1 audit events"},
	} {
		a := newAnalyzer(policy.DefaultConfig())
		if err := a.readLog("log", strings.NewReader(test.log)); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
}

// TestBounded: whatever the names, few are kept; and all requests are counted.
func TestBounded(t *testing.T) {
	tally := newTally()
	const requests = 2 * maxRows
	for i := range requests {
		key := rowKey{client: client{agent: "tool", user: fmt.Sprint("user-", i)}, resource: "pods", verdict: verdict{kind: kindList, answeredBy: byMemory}}
		tally.add(key, false, time.Unix(int64(i)*3600, 0), 0)
	}
	var counted int64
	for _, row := range tally.rows {
		counted += row.count()
	}
	if len(tally.rows) > maxRows+1 || counted != requests {
		t.Errorf("%d rows, %d counted of %d", len(tally.rows), counted, requests)
	}
}

// TestNames: what clients call themselves cannot harm a terminal, nor hold a credential.
func TestNames(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	log := event("/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) {
		e.UserAgent, e.User.Username = secret, "\x1b[31m<script>"+strings.Repeat("x", 500)
	})
	log += event("/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.User.Username = "system:node:n1" })
	log += event("/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.User.Username = "system:node:n2" })
	r := analyzed(t, policy.DefaultConfig(), log)
	if len(r.Rows) != 2 {
		t.Errorf("nodes are told apart: %+v", r.Rows)
	}
	var text bytes.Buffer
	expect.NoError(t, r.writeText(&text, 0))
	for _, not := range []string{secret, "\x1b", strings.Repeat("x", maxName+1)} {
		if strings.Contains(text.String(), not) {
			t.Errorf("the text has what it should not have:\n%s", &text)
		}
	}
}

// TestAdvice: every reason to forward has words, and the most frequent comes first.
func TestAdvice(t *testing.T) {
	log := strings.Repeat(event("/api/v1/pods", nil), 3) + strings.Repeat(event("/api/v1/pods?watch=1&resourceVersion=1", nil), 2) +
		event("/api/v1/secrets", nil)
	r := analyzed(t, policy.DefaultConfig(), log)
	var what []string
	for _, a := range r.Advice {
		what = append(what, a.What)
		if a.Do == "" || a.Why == "" || len(a.Most) == 0 {
			t.Errorf("nothing is said: %+v", a)
		}
	}
	expect.Same(t, []string{"consistent-lists", "watches", "not-cached"}, what)
}
