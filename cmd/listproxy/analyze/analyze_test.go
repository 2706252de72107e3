package analyze

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/policy"
	"github.com/listproxy/listproxy/test/expect"
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
		{"/api/v1/pods?limit=500", nil, "most-recent consistent-lists"},
		{"/api/v1/pods", nil, "most-recent consistent-lists"},
		{"/api/v1/secrets?resourceVersion=0", nil, "any kube-apiserver not-cached"},
		{"/api/v1/secrets", nil, "most-recent kube-apiserver not-cached"},
		{"/api/v1/events", nil, "most-recent kube-apiserver not-cached"},
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
		{"/api/v1/pods?resourceVersion=0", func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }, "any kube-apiserver credentials"},
		{"/api/v1/pods?watch=true", func(e *auditv1.Event) { e.User.Username = "system:anonymous" }, "streaming-list kube-apiserver credentials"},
		{"/api/v1/pods?watch=true", func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }, "streaming-list kube-apiserver credentials"},
		{"/api/v1/pods?limit=500", func(e *auditv1.Event) { e.UserAgent = "kubectl/v1.36.3" }, "most-recent kube-apiserver representation"},
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

// TestStages: each list is counted once, and each watch once, whichever stages the log has of it.
func TestStages(t *testing.T) {
	staged := func(stage auditv1.Stage) func(*auditv1.Event) { return func(e *auditv1.Event) { e.Stage = stage } }
	const list, watch = "/api/v1/pods?resourceVersion=0", "/api/v1/pods?watch=true&resourceVersion=12"
	log := event(list, staged("RequestReceived")) + event(list, nil)
	log += event(list, staged("ResponseStarted")) // listproxy's own
	for range 3 {
		log += event(watch, staged("RequestReceived")) + event(watch, staged("ResponseStarted"))
	}
	log += event(watch, nil) // two go on
	r := analyzed(t, policy.DefaultConfig(), log)
	if r.Totals.Lists.Count != 2 || r.Totals.Watches.Count != 3 {
		t.Errorf("%+v", r.Totals)
	}
	if r = analyzed(t, policy.DefaultConfig(), event(watch, nil)+event(watch, nil)); r.Totals.Watches.Count != 2 {
		t.Errorf("only ends: %+v", r.Totals)
	}
	if r.Totals.Seconds != 0 {
		t.Errorf("watches took %v s", r.Totals.Seconds)
	}
}

// TestOwn: what kube-apiserver asks itself, and listproxy for itself, is not counted.
func TestOwn(t *testing.T) {
	const list = "/api/v1/pods?resourceVersion=0"
	log := event(list, func(e *auditv1.Event) { e.User.Username = "system:apiserver" }) +
		event(list, func(e *auditv1.Event) { e.UserAgent = "listproxy/v1.0.0" }) + event(list, nil)
	if r := analyzed(t, policy.DefaultConfig(), log); r.Totals.Lists.Count != 1 || r.Files[0].Others != 2 {
		t.Errorf("%+v", r)
	}
}

// TestOddTimes: a request of which nobody knows when it came took no time, and the report can be
// written.
func TestOddTimes(t *testing.T) {
	received := regexp.MustCompile(`("requestReceivedTimestamp":)"[^"]*"`)
	var log string
	for _, odd := range []string{"null", `"9999-12-31T23:59:59-23:00"`} {
		log += received.ReplaceAllString(event("/api/v1/pods", nil), "${1}"+odd)
	}
	r := analyzed(t, policy.DefaultConfig(), log)
	if r.Totals.Lists.Count != 2 || r.Totals.Seconds != 0 {
		t.Errorf("%+v", r.Totals)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// TestTables: an event of level RequestResponse holds the answer, which says whether it is a table, or
// text in its place.
func TestTables(t *testing.T) {
	list := `{"kind":"PodList","apiVersion":"v1","items":[{"metadata":{"name":"` + strings.Repeat("x", 2*lineBuffer) + `"}}]}`
	with := func(object string) string {
		line := event("/api/v1/pods?resourceVersion=0", nil)
		return strings.Replace(line, `"requestReceivedTimestamp"`, `"responseObject":`+object+`,"requestReceivedTimestamp"`, 1)
	}
	log := with(list) + with(`{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`) + with(`"skipped-too-big-size-object"`)
	r := analyzed(t, policy.DefaultConfig(), log)
	want := Answers{Count: 3, FromMemory: 2, Forwarded: 1}
	expect.Same(t, want, r.Totals.Lists)
	if r.Totals.Seconds != 0.75 {
		t.Errorf("%+v", r.Totals)
	}
}

// TestWrapped: an event counts in whatever an exporter wraps around it, once.
func TestWrapped(t *testing.T) {
	list := strings.TrimSuffix(event("/api/v1/pods?resourceVersion=0", nil), "\n")
	watch := strings.TrimSuffix(event("/api/v1/pods?watch=true&resourceVersion=12", nil), "\n")
	text := func(s string) string { b, _ := json.Marshal(s); return string(b) }
	sorted := func(s string) string { // the members in alphabetical order, as those write them who have read them
		var members map[string]any
		expect.NoError(t, json.Unmarshal([]byte(s), &members))
		b, _ := json.Marshal(members)
		return string(b)
	}
	for name, test := range map[string]struct {
		log            string
		lists, watches int64
	}{
		"EKS, exported to S3":        {"2026-11-20T10:00:00.000Z " + list, 1, 0},
		"EKS, aws logs tail":         {"2026-11-20T10:00:00+00:00 kube-apiserver-audit-0123 " + list, 1, 0},
		"EKS, a subscription":        {`{"messageType":"DATA_MESSAGE","logGroup":"/aws/eks/it/cluster","logEvents":[{"id":"1","timestamp":1,"message":` + text(list) + `},{"id":"2","message":` + text(watch) + `}]}`, 1, 1},
		"EKS, several in a line":     {`{"logEvents":[{"message":` + text(list) + `}]}{"logEvents":[{"message":` + text(list) + `}]}`, 2, 0},
		"EKS, Logs Insights":         {`{"@timestamp":"2026-11-20 10:00:00.000","@message":` + sorted(list) + `}`, 1, 0},
		"EKS, a log shipper":         {`{"message":` + text(list) + `,"logGroup":"/aws/eks/it/cluster"}`, 1, 0},
		"AKS, a storage account":     {`{"time":"2026-11-20T10:00:00Z","category":"kube-audit","operationName":"Microsoft.ContainerService/managedClusters/diagnosticLogs/Read","properties":{"log":` + text(list) + `,"stream":"stdout","pod":"kube-apiserver-0"}}`, 1, 0},
		"AKS, an event hub":          {`{"records":[{"category":"kube-audit","properties":{"log":` + text(list+"\n") + `}},{"category":"kube-audit","properties":{"log":` + text(watch) + `}},{"category":"guard","properties":{"log":"x"}}]}`, 1, 1},
		"AKS, properties as text":    {`{"category":"kube-audit","properties":` + text(`{"log":`+text(list)+`}`) + `}`, 1, 0},
		"Cloud Logging, of any node": {`{"insertId":"1","jsonPayload":` + sorted(watch) + `,"resource":{"type":"k8s_cluster"}}`, 0, 1},
		"kube-apiserver's webhook":   {`{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + list + `,` + watch + `]}`, 1, 1},
		"a container runtime":        {"2026-11-20T10:00:00.000000000Z stdout F " + list, 1, 0},
		"an array":                   {"[" + list + "," + list + "]", 2, 0},
		"too deep":                   {strings.Repeat("[", maxWrapped+2) + list + strings.Repeat("]", maxWrapped+2) + "\n" + list, 1, 0},
	} {
		r := analyzed(t, policy.DefaultConfig(), test.log)
		if r.Totals.Lists.Count != test.lists || r.Totals.Watches.Count != test.watches {
			t.Errorf("%s: %+v", name, r.Totals)
		}
		if r.Rows[0].UserAgent != "tool/v1" || r.Rows[0].User != "alice" || r.Rows[0].Resource != "pods" {
			t.Errorf("%s: %+v", name, r.Rows[0])
		}
	}
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

// TestBadLines: what cannot be read is counted, and what comes after it is read.
func TestBadLines(t *testing.T) {
	good := event("/api/v1/pods?resourceVersion=0", nil)
	log := "no log\n" + good[:50] + "\n\n" + `{"kind":"Pod"}` + "\n" + `{"kind":7,"apiVersion":"audit.k8s.io/v1"}` + "\n[]\n" +
		`{"kind":"Event","apiVersion":"audit.k8s.io/v1"}` + "\n{audit.k8s.io\n" + good
	r := analyzed(t, policy.DefaultConfig(), log+strings.TrimSuffix(good, "\n"))
	if f := r.Files[0]; f.Bad != 7 || f.Lines != 9 || r.Totals.Lists.Count != 2 {
		t.Errorf("%+v, %d lists", f, r.Totals.Lists.Count)
	}
}

// TestLongLines: one that is too long is counted, and the next is read.
func TestLongLines(t *testing.T) {
	good := event("/api/v1/pods?resourceVersion=0", nil)
	log := io.MultiReader(strings.NewReader(good), strings.NewReader(strings.Repeat("x", maxLine+lineBuffer)), strings.NewReader("\n"+good))
	a := newAnalyzer(policy.DefaultConfig())
	expect.NoError(t, a.readLog("log", log))
	if r := a.report(); r.Files[0].TooLong != 1 || r.Files[0].Lines != 3 || r.Totals.Lists.Count != 2 {
		t.Errorf("%+v, %d lists", r.Files[0], r.Totals.Lists.Count)
	}
}

// TestGzip: compressed logs are read, also several in one file, and what there is of one that ends
// early.
func TestGzip(t *testing.T) {
	var zipped bytes.Buffer
	for range 2 {
		w := gzip.NewWriter(&zipped)
		_, _ = io.WriteString(w, strings.Repeat(event("/api/v1/pods?resourceVersion=0", nil), 100))
		_ = w.Close()
	}
	whole := zipped.Bytes()
	a := newAnalyzer(policy.DefaultConfig())
	expect.NoError(t, a.readLog("whole", bytes.NewReader(whole)))
	if r := a.report(); r.Totals.Lists.Count != 200 {
		t.Errorf("%+v", r.Totals)
	}
	if err := a.readLog("cut", bytes.NewReader(whole[:len(whole)-8])); err == nil {
		t.Error("no error for a file that ends early")
	}
	if r := a.report(); r.Totals.Lists.Count < 300 || r.Files[1].Problem == "" {
		t.Errorf("%+v", r)
	}
}

// TestBounded: whatever the names, few are kept; and all requests are counted.
func TestBounded(t *testing.T) {
	tally := newTally()
	const requests = 2 * maxRows
	for i := range requests {
		key := rowKey{client: client{agent: "tool", user: fmt.Sprint("user-", i)}, resource: "pods", verdict: verdict{kind: kindList, by: byMemory}}
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
