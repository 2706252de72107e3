package analyze

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// analyze reports on one audit log.
func analyze(t *testing.T, p *policy.Config, log string) Report {
	t.Helper()
	a := newAnalyzer(p)
	expect.NoError(t, a.readLog("log", strings.NewReader(log)))
	return a.report()
}

// TestForecast: of each request in an audit log, the report says which form it has, who would answer it, and why.
func TestForecast(t *testing.T) {
	asUser := func(name string) func(*auditv1.Event) {
		return func(e *auditv1.Event) { e.User.Username = name }
	}
	impersonating := func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }
	forbidden := func(e *auditv1.Event) { e.ResponseStatus.Code = http.StatusForbidden }
	byKubectl := func(e *auditv1.Event) { e.UserAgent = "kubectl/v1.36.3" }
	const (
		list           = "/api/v1/pods?resourceVersion=0"
		selectedAt12   = "/api/v1/namespaces/a/pods?labelSelector=a%3Db&resourceVersion=12&resourceVersionMatch=NotOlderThan"
		streamingList  = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
		watchOfChanges = "/api/v1/pods?watch=true&sendInitialEvents=false&resourceVersionMatch=NotOlderThan"
	)
	for _, test := range []struct {
		uri    string
		change func(*auditv1.Event)
		want   string // the form, who answers, and the reason if it is kube-apiserver
	}{
		{uri: list, want: "any memory"},
		{uri: list + "&limit=500", want: "any memory"},
		{uri: selectedAt12, want: "not-older-than memory"},
		{uri: "/api/v1/pods?resourceVersion=12&limit=5", want: "exact memory"},
		{uri: "/api/v1/pods?limit=5&continue=" + token, want: "continue memory"},
		{uri: "/api/v1/pods?limit=500", want: "consistent consistent-lists"},
		{uri: "/api/v1/pods", want: "consistent consistent-lists"},
		{uri: "/api/v1/secrets?resourceVersion=0", want: "any kube-apiserver not-cached"},
		{uri: "/api/v1/secrets", want: "consistent kube-apiserver not-cached"},
		{uri: "/api/v1/events", want: "consistent kube-apiserver not-cached"},
		{uri: "/apis/metrics.k8s.io/v1beta1/pods?resourceVersion=0", want: "any kube-apiserver unknown-resource"},
		{uri: list + "&unheard=of", want: "unknown kube-apiserver not-canonical"},
		{uri: list + "&resourceVersionMatch=Exact", want: "unknown kube-apiserver not-canonical"},
		{uri: "/api/v1/Pods?resourceVersion=0", want: "unknown kube-apiserver not-canonical"},
		{uri: "http://[", want: "unknown kube-apiserver not-canonical"},
		{uri: "/api/v1/pods?watch=true&resourceVersion=12", want: "watch watches"},
		{uri: streamingList, want: "streaming-list watches"},
		{uri: "/api/v1/pods?watch=true", want: "streaming-list watches"},
		{uri: watchOfChanges, want: "watch watches"},
		{uri: "/api/v1/events?watch=true&resourceVersion=12", want: "watch kube-apiserver not-cached"},
		{uri: "/api/v1/watch/pods", want: "unknown kube-apiserver watch"},
		{
			uri:  "/api/v1/pods?watch=true&resourceVersion=12&sendInitialEvents=true",
			want: "unknown kube-apiserver not-canonical",
		},
		{uri: "/api/v1/pods?watch=yes&resourceVersion=12", want: "unknown kube-apiserver watch"},
		{uri: list, change: forbidden, want: "any kube-apiserver refused"},
		{uri: list, change: asUser("system:anonymous"), want: "any kube-apiserver credentials"},
		{uri: list, change: impersonating, want: "any memory"},
		{
			uri: "/api/v1/pods?watch=true", change: asUser("system:anonymous"),
			want: "streaming-list kube-apiserver credentials",
		},
		{uri: "/api/v1/pods?watch=true", change: impersonating, want: "streaming-list watches"},
		{uri: "/api/v1/pods?limit=500", change: byKubectl, want: "consistent kube-apiserver representation"},
		{uri: list, change: byKubectl, want: "any memory"},
	} {
		t.Run(test.uri, func(t *testing.T) {
			r := analyze(t, policy.DefaultConfig(), event(test.uri, test.change))
			if len(r.Rows) != 1 || len(r.Rows[0].Forms) != 1 {
				t.Fatalf("one request gives %+v, want one row with one form", r.Rows)
			}
			f := r.Rows[0].Forms[0]
			expect.Same(t, test.want, strings.TrimSpace(fmt.Sprint(f.Form, " ", f.AnsweredBy, " ", f.Reason)))
		})
	}
}

// counts are what a report has of one log.
type counts struct {
	Lists, FromMemory, Watches, Others, Bad int64
	Seconds                                 float64
}

const (
	listURI  = "/api/v1/pods?resourceVersion=0"
	watchURI = "/api/v1/pods?watch=true&resourceVersion=12"
)

// logCase is a log and what is counted of it.
type logCase struct {
	log  string
	want counts
}

// checkCounts analyzes each log, and requires its counts and a row for alice's tool and its pods.
func checkCounts(t *testing.T, cases map[string]logCase) {
	t.Helper()
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			r := analyze(t, policy.DefaultConfig(), test.log)
			f := r.Files[0]
			expect.Same(t, test.want, counts{
				Lists: r.Totals.Lists.Count, FromMemory: r.Totals.Lists.FromMemory, Watches: r.Totals.Watches.Count,
				Others: f.Others, Bad: f.Bad, Seconds: r.Totals.Seconds,
			})
			if r.Rows[0].UserAgent != "tool/v1" || r.Rows[0].User != "alice" || r.Rows[0].Resource != "pods" {
				t.Errorf("the first row is %+v, want alice's tool/v1 and pods", r.Rows[0])
			}
			_, err := json.Marshal(r)
			expect.NoError(t, err)
		})
	}
}

// TestCounts: each request of a log is counted once, with how long it took, and so is each line that is none.
func TestCounts(t *testing.T) {
	list, watch := event(listURI, nil), event(watchURI, nil)
	atStage := func(uri string, stage auditv1.Stage) string {
		return event(uri, func(e *auditv1.Event) { e.Stage = stage })
	}
	openedWatch := atStage(watchURI, "RequestReceived") + atStage(watchURI, "ResponseStarted")
	receivedAt := func(timestamp string) string {
		return regexp.MustCompile(`("requestReceivedTimestamp":)"[^"]*"`).ReplaceAllString(list, "${1}"+timestamp)
	}
	withResponse := func(object string) string { // as with the level RequestResponse
		const next = `"requestReceivedTimestamp"`
		return strings.Replace(list, next, `"responseObject":`+object+`,`+next, 1)
	}
	checkCounts(t, map[string]logCase{
		"all stages of lists, the last one of listproxy": {
			log:  atStage(listURI, "RequestReceived") + list + atStage(listURI, "ResponseStarted"),
			want: counts{Lists: 2, FromMemory: 2, Others: 1, Seconds: 0.5},
		},
		"all stages of watches; two watches go on": {
			log:  openedWatch + openedWatch + openedWatch + watch,
			want: counts{Watches: 3, Others: 3},
		},
		"only the ends of watches": {log: watch + watch, want: counts{Watches: 2}},
		"kube-apiserver's own requests and listproxy's": {
			log: event(listURI, func(e *auditv1.Event) { e.User.Username = "system:apiserver" }) +
				event(listURI, func(e *auditv1.Event) { e.UserAgent = "listproxy/v1.0.0" }) + list,
			want: counts{Lists: 1, FromMemory: 1, Others: 2, Seconds: 0.25},
		},
		"nobody knows when it came": {
			log:  receivedAt("null") + receivedAt(`"9999-12-31T23:59:59-23:00"`),
			want: counts{Lists: 2, FromMemory: 2},
		},
		"a list, a table, and neither": {
			log: withResponse(`{"kind":"PodList","items":[{"metadata":{"name":"`+strings.Repeat("x", 2*lineBuffer)+`"}}]}`) +
				withResponse(`{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`) + withResponse(`"skipped-too-big-size-object"`),
			want: counts{Lists: 3, FromMemory: 2, Seconds: 0.75},
		},
		"what cannot be read": {
			log: "no log\n" + list[:50] + "\n\n" + `{"kind":"Pod"}` + "\n" + `{"kind":7,"apiVersion":"audit.k8s.io/v1"}` + "\n" +
				"[]\n" + `{"kind":"Event","apiVersion":"audit.k8s.io/v1"}` + "\n{audit.k8s.io\n" + list + list,
			want: counts{Lists: 2, FromMemory: 2, Bad: 7, Seconds: 0.5},
		},
		"compressed, two in one": {
			log:  proxytest.GzipMember(list) + proxytest.GzipMember(list+list),
			want: counts{Lists: 3, FromMemory: 3, Seconds: 0.75},
		},
	})
}

// endless is a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestTooLongLine: a line that is too long ends the reading of its log with an error. The lines before it count.
func TestTooLongLine(t *testing.T) {
	a := newAnalyzer(policy.DefaultConfig())
	err := a.readLog("log", io.MultiReader(strings.NewReader(event(listURI, nil)), endless{}))
	if !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("the error is %v, want %v", err, bufio.ErrTooLong)
	}
	r := a.report()
	expect.Same(t, int64(1), r.Totals.Lists.Count)
	expect.Same(t, bufio.ErrTooLong.Error(), r.Files[0].Problem)
}

// TestExports: events are found in whatever an exporter wraps around them.
func TestExports(t *testing.T) {
	list, watch := strings.TrimSuffix(event(listURI, nil), "\n"), strings.TrimSuffix(event(watchURI, nil), "\n")
	asText := func(s string) string {
		b, err := json.Marshal(s)
		expect.NoError(t, err)
		return string(b)
	}
	// sorted has the members in alphabetical order, as whoever has parsed an event writes it.
	sorted := func(event string) string {
		var members map[string]any
		expect.NoError(t, json.Unmarshal([]byte(event), &members))
		b, err := json.Marshal(members)
		expect.NoError(t, err)
		return string(b)
	}
	listCounted := counts{Lists: 1, FromMemory: 1, Seconds: 0.25}
	bothCounted := counts{Lists: 1, FromMemory: 1, Watches: 1, Seconds: 0.25}
	checkCounts(t, map[string]logCase{
		"EKS, exported to S3": {log: "2026-11-20T10:00:00.000Z " + list, want: listCounted},
		"EKS, aws logs tail": {
			log:  "2026-11-20T10:00:00+00:00 kube-apiserver-audit-0123 " + list,
			want: listCounted,
		},
		"EKS, a subscription": {
			log: `{"messageType":"DATA_MESSAGE","logGroup":"/aws/eks/it/cluster","logEvents":[` +
				`{"id":"1","timestamp":1,"message":` + asText(list) + `},{"id":"2","message":` + asText(watch) + `}]}`,
			want: bothCounted,
		},
		"EKS, several in a line": {
			log:  `{"logEvents":[{"message":` + asText(list) + `}]}{"logEvents":[{"message":` + asText(watch) + `}]}`,
			want: bothCounted,
		},
		"EKS, Logs Insights": {
			log:  `{"@timestamp":"2026-11-20 10:00:00.000","@message":` + sorted(list) + `}`,
			want: listCounted,
		},
		"EKS, a log shipper": {
			log:  `{"message":` + asText(list) + `,"logGroup":"/aws/eks/it/cluster"}`,
			want: listCounted,
		},
		"AKS, a storage account": {
			log: `{"time":"2026-11-20T10:00:00Z","category":"kube-audit",` +
				`"operationName":"Microsoft.ContainerService/managedClusters/diagnosticLogs/Read",` +
				`"properties":{"log":` + asText(list) + `,"stream":"stdout","pod":"kube-apiserver-0"}}`,
			want: listCounted,
		},
		"AKS, an event hub": {
			log: `{"records":[{"category":"kube-audit","properties":{"log":` + asText(list+"\n") + `}},` +
				`{"category":"kube-audit","properties":{"log":` + asText(watch) + `}},` +
				`{"category":"guard","properties":{"log":"x"}}]}`,
			want: bothCounted,
		},
		"AKS, properties as text": {
			log:  `{"category":"kube-audit","properties":` + asText(`{"log":`+asText(list)+`}`) + `}`,
			want: listCounted,
		},
		"Cloud Logging, of any node": {
			log:  `{"insertId":"1","jsonPayload":` + sorted(watch) + `,"resource":{"type":"k8s_cluster"}}`,
			want: counts{Watches: 1},
		},
		"kube-apiserver's webhook": {
			log:  `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + list + `,` + watch + `]}`,
			want: bothCounted,
		},
		"a container runtime": {log: "2026-11-20T10:00:00.000000000Z stdout F " + list, want: listCounted},
		"an array":            {log: "[" + list + "," + watch + "]", want: bothCounted},
		"too deep": {
			log:  strings.Repeat("[", maxDepth+2) + list + strings.Repeat("]", maxDepth+2) + "\n" + list,
			want: counts{Lists: 1, FromMemory: 1, Bad: 1, Seconds: 0.25},
		},
	})
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
	r := analyze(t, p, event("/api/v1/secrets?resourceVersion=0", nil)+event("/api/v1/pods", nil)+
		event("/api/v1/configmaps", nil)+event("/api/v1/nodes", nil))
	expect.Same(t, Answers{Count: 4, FromMemory: 3, Forwarded: 1}, r.Totals.Lists)
}

// TestForeignLogs: a log that cannot be analyzed is an error that says what to do.
func TestForeignLogs(t *testing.T) {
	for name, test := range map[string]struct {
		log      string
		wantSays string
	}{
		"an access log": {
			log:      `time=2026-11-20T10:00:00Z level=ACCESS msg=request target="list pods v1"`,
			wantSays: "--audit-log-path",
		},
		"JSON over several lines": {
			log:      "[\n  {\n    \"kind\": \"Event\",\n    \"apiVersion\": \"audit.k8s.io/v1\"\n  }\n]\n",
			wantSays: "jq -c",
		},
		"nothing": {log: "", wantSays: "no audit event"},
		"no list": {
			log:      event("/api/v1/namespaces/a/pods/b", func(e *auditv1.Event) { e.Verb = "get" }),
			wantSays: "no list and no watch among its 1 audit events",
		},
	} {
		a := newAnalyzer(policy.DefaultConfig())
		err := a.readLog("log", strings.NewReader(test.log))
		if err == nil || !strings.Contains(err.Error(), test.wantSays) {
			t.Errorf("%s: the error is %v, want one that says %q", name, err, test.wantSays)
		}
	}
}

// TestBounded: a report keeps at most maxCounters clients, and counts the requests of all.
func TestBounded(t *testing.T) {
	tally := newTally()
	const requests = 2 * maxCounters
	for i := range requests {
		key := counterKey{
			rowKey:     rowKey{client: client{userAgent: "tool", user: fmt.Sprint("user-", i)}, resource: "pods"},
			prediction: prediction{verb: verbList, answeredBy: byMemory},
		}
		const atStart = false
		tally.add(key, atStart, time.Unix(int64(i)*3600, 0), 0)
	}
	var counted int64
	for _, counter := range tally.counters {
		counted += counter.requests()
	}
	if len(tally.counters) > maxCounters+1 || counted != requests {
		t.Errorf("%d counters with %d requests, want at most %d with %d", len(tally.counters), counted, maxCounters+1, requests)
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
	r := analyze(t, policy.DefaultConfig(), log)
	if len(r.Rows) != 2 {
		t.Errorf("nodes have rows of their own: %+v", r.Rows)
	}
	var text bytes.Buffer
	expect.NoError(t, r.writeText(&text, 0))
	for _, forbidden := range []string{secret, "\x1b", strings.Repeat("x", maxName+1)} {
		if strings.Contains(text.String(), forbidden) {
			t.Errorf("the text has %q:\n%s", forbidden, &text)
		}
	}
}

// TestAdvice: every reason to forward has words, and the most frequent comes first.
func TestAdvice(t *testing.T) {
	log := strings.Repeat(event("/api/v1/pods", nil), 3) + strings.Repeat(event(watchURI, nil), 2) +
		event("/api/v1/secrets", nil)
	r := analyze(t, policy.DefaultConfig(), log)
	var what []string
	for _, a := range r.Advice {
		what = append(what, a.What)
		if a.Do == "" || a.Why == "" || len(a.Most) == 0 {
			t.Errorf("advice %+v, want Why, Do and Most", a)
		}
	}
	expect.Same(t, []string{"consistent-lists", "watches", "not-cached"}, what)
}
