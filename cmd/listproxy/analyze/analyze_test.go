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
	"github.com/listproxy/listproxy/test/clitest"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/proxytest"
)

// listURI is a list of pods of any version, and watchURI a watch of pods from a revision.
const (
	listURI  = "/api/v1/pods?resourceVersion=0"
	watchURI = "/api/v1/pods?watch=true&resourceVersion=12"
)

// event returns a line of kube-apiserver's audit log: alice's program has listed pods (or watched them, if "watch" is in the
// URI). That took 0.25 s. Each change that is not nil is made to the event before it is written.
func event(uri string, changes ...func(*auditv1.Event)) string {
	received := metav1.NewMicroTime(time.Date(2026, 11, 20, 10, 0, 0, 0, time.UTC))
	e := auditv1.Event{
		TypeMeta:                 metav1.TypeMeta{Kind: "Event", APIVersion: "audit.k8s.io/v1"},
		Level:                    auditv1.LevelMetadata,
		AuditID:                  "1",
		Stage:                    auditv1.StageResponseComplete,
		RequestURI:               uri,
		Verb:                     "list",
		UserAgent:                "tool/v1 (linux/amd64)",
		User:                     authenticationv1.UserInfo{Username: "alice", Groups: []string{"system:authenticated"}},
		ObjectRef:                &auditv1.ObjectReference{Resource: "pods", APIVersion: "v1"},
		ResponseStatus:           &metav1.Status{Code: http.StatusOK},
		RequestReceivedTimestamp: received,
		StageTimestamp:           metav1.NewMicroTime(received.Add(250 * time.Millisecond)),
	}
	if strings.Contains(uri, "watch") {
		e.Verb = "watch"
	}
	for _, change := range changes {
		if change != nil {
			change(&e)
		}
	}
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	return string(line) + "\n"
}

// analyze returns the report about one log under a policy file.
func analyze(t *testing.T, f *policy.File, log string) Report {
	t.Helper()
	a := newAnalyzer(f)
	expect.NoError(t, a.readLog("log", strings.NewReader(log)))
	return a.report()
}

// TestPredict: for each request of an audit log, the report says which form of list or watch it is, who would answer it, and,
// if that is kube-apiserver, for what reason. (Package policy tests the decisions.)
func TestPredict(t *testing.T) {
	asUser := func(name string) func(*auditv1.Event) {
		return func(e *auditv1.Event) { e.User.Username = name }
	}
	anonymous := asUser("system:anonymous")
	impersonating := func(e *auditv1.Event) { e.ImpersonatedUser = &authenticationv1.UserInfo{Username: "bob"} }
	forbidden := func(e *auditv1.Event) { e.ResponseStatus.Code = http.StatusForbidden }
	byKubectl := func(e *auditv1.Event) { e.UserAgent = "kubectl/v1.36.3" }
	const (
		selectedAt12  = "/api/v1/namespaces/a/pods?labelSelector=a%3Db&resourceVersion=12&resourceVersionMatch=NotOlderThan"
		streamingList = "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	)
	nextPage := "/api/v1/pods?limit=5&continue=" + policy.EncodeContinue(1234, "team-a/pod-1\x00")
	for _, test := range []struct {
		name   string
		uri    string
		change func(*auditv1.Event)
		// want is "FORM ANSWERER [REASON]". The answerer is memory, kube-apiserver, or the setting that would make it memory:
		// consistent-lists or watches.
		want string
	}{
		{name: "any version", uri: listURI, want: "any memory"},
		{name: "any version, impersonating", uri: listURI, change: impersonating, want: "any memory"},
		{name: "not older than 12, with a selector", uri: selectedAt12, want: "not-older-than memory"},
		{name: "exactly 12", uri: "/api/v1/pods?resourceVersion=12&limit=5", want: "exact memory"},
		{name: "next page", uri: nextPage, want: "continue memory"},
		{name: "newest state", uri: "/api/v1/pods", want: "consistent consistent-lists"},
		{
			name: "newest state, as a table", uri: "/api/v1/pods?limit=500", change: byKubectl,
			want: "consistent kube-apiserver representation",
		},
		{name: "Secrets of any version", uri: "/api/v1/secrets?resourceVersion=0", want: "any kube-apiserver not-cached"},
		{
			name: "aggregated resource", uri: "/apis/metrics.k8s.io/v1beta1/pods?resourceVersion=0",
			want: "any kube-apiserver unknown-resource",
		},
		{name: "forbidden", uri: listURI, change: forbidden, want: "any kube-apiserver refused"},
		{name: "anonymous", uri: listURI, change: anonymous, want: "any kube-apiserver credentials"},
		{name: "unknown parameter", uri: listURI + "&unheard=of", want: "unknown kube-apiserver not-canonical"},
		{name: "malformed URI", uri: "http://[", want: "unknown kube-apiserver not-canonical"},

		{name: "watch from 12", uri: watchURI, want: "watch watches"},
		{name: "streaming list", uri: streamingList, want: "streaming-list watches"},
		{name: "watch without a version", uri: "/api/v1/pods?watch=true", want: "streaming-list watches"},
		{
			name: "watch, anonymous", uri: "/api/v1/pods?watch=true", change: anonymous,
			want: "streaming-list kube-apiserver credentials",
		},
		{
			name: "watch=yes", uri: "/api/v1/pods?watch=yes&resourceVersion=12",
			want: "unknown kube-apiserver watch",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := analyze(t, &policy.File{}, event(test.uri, test.change))
			if len(r.Rows) != 1 || len(r.Rows[0].Forms) != 1 {
				t.Fatalf("got the rows %+v, want one with one form", r.Rows)
			}
			f := r.Rows[0].Forms[0]
			expect.Same(t, test.want, strings.TrimSpace(fmt.Sprint(f.Form, " ", f.AnsweredBy, " ", f.Reason)))
		})
	}
}

// counts are the numbers of a report about one log.
type counts struct {
	Lists, FromMemory, Watches int64
	Others                     int64   // events that are no list and no watch of a client
	Bad                        int64   // lines without an event
	Seconds                    float64 // that the lists took
}

// logCase is a log with the counts of its report.
type logCase struct {
	name string
	log  string
	want counts
}

// checkCounts checks that the report about each log has its counts and a row for alice's tool and pods, and can be written as
// JSON.
func checkCounts(t *testing.T, cases []logCase) {
	t.Helper()
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			r := analyze(t, &policy.File{}, test.log)
			f := r.Files[0]
			expect.Same(t, test.want, counts{
				Lists: r.Totals.Lists.Count, FromMemory: r.Totals.Lists.FromMemory, Watches: r.Totals.Watches.Count,
				Others: f.Others, Bad: f.Bad, Seconds: r.Totals.Seconds,
			})
			row := r.Rows[0]
			if row.UserAgent != "tool/v1" || row.User != "alice" || row.Resource != "pods" {
				t.Errorf("the first row is %+v, want alice's tool/v1 and pods", row)
			}
			_, err := json.Marshal(r) // an error if a year is above 9999
			expect.NoError(t, err)
		})
	}
}

// TestCounts: each request of a log counts once, with its duration, whatever stages the log has. Each line without an event
// counts as Bad, and a blank line does not count.
func TestCounts(t *testing.T) {
	list, watch := event(listURI), event(watchURI)
	atStage := func(uri string, stage auditv1.Stage) string {
		return event(uri, func(e *auditv1.Event) { e.Stage = stage })
	}
	openedWatch := atStage(watchURI, "RequestReceived") + atStage(watchURI, "ResponseStarted")
	receivedAt := func(timestamp string) string {
		return regexp.MustCompile(`("requestReceivedTimestamp":)"[^"]*"`).ReplaceAllString(list, "${1}"+timestamp)
	}
	withResponse := func(object string) string { // an event of the level RequestResponse
		const next = `"requestReceivedTimestamp"`
		return strings.Replace(list, next, `"responseObject":`+object+`,`+next, 1)
	}
	checkCounts(t, []logCase{
		{
			name: "two stages of a list",
			log:  atStage(listURI, "RequestReceived") + list,
			want: counts{Lists: 1, FromMemory: 1, Others: 1, Seconds: 0.25},
		},
		{
			name: "a list that ends with ResponseStarted, as listproxy logs it",
			log:  atStage(listURI, "ResponseStarted"),
			want: counts{Lists: 1, FromMemory: 1, Seconds: 0.25},
		},
		{
			name: "all stages of three watches; one watch has ended",
			log:  openedWatch + openedWatch + openedWatch + watch,
			want: counts{Watches: 3, Others: 3},
		},
		{name: "watches without the stage ResponseStarted", log: watch + watch, want: counts{Watches: 2}},
		{
			name: "requests of kube-apiserver and of listproxy themselves",
			log: event(listURI, func(e *auditv1.Event) { e.User.Username = "system:apiserver" }) +
				event(listURI, func(e *auditv1.Event) { e.UserAgent = "listproxy/v1.0.0" }) + list,
			want: counts{Lists: 1, FromMemory: 1, Others: 2, Seconds: 0.25},
		},
		{
			name: "no time of receipt, and one that is out of range",
			log:  receivedAt("null") + receivedAt(`"9999-12-31T23:59:59-23:00"`),
			want: counts{Lists: 2, FromMemory: 2},
		},
		{
			name: "responses: a list, a table, and a string",
			log: withResponse(`{"kind":"PodList","items":[{"metadata":{"name":"`+strings.Repeat("x", 2*lineBuffer)+`"}}]}`) +
				withResponse(`{"kind":"Table","apiVersion":"meta.k8s.io/v1"}`) + withResponse(`"skipped-too-big-size-object"`),
			want: counts{Lists: 3, FromMemory: 2, Seconds: 0.75},
		},
		{
			name: "seven lines without an event",
			log: strings.Join([]string{
				"no log",
				list[:50],
				"[]",
				"{audit.k8s.io",
				`{"kind":"Pod"}`,
				`{"kind":7,"apiVersion":"audit.k8s.io/v1"}`,
				`{"kind":"Event","apiVersion":"audit.k8s.io/v1"}`,
				list,
			}, "\n"),
			want: counts{Lists: 1, FromMemory: 1, Bad: 7, Seconds: 0.25},
		},
		{
			name: "blank lines", log: "\n\n" + list + "\n",
			want: counts{Lists: 1, FromMemory: 1, Seconds: 0.25},
		},
		{
			name: "two gzip members",
			log:  proxytest.GzipMember(list) + proxytest.GzipMember(list+list),
			want: counts{Lists: 3, FromMemory: 3, Seconds: 0.75},
		},
	})
}

// endless reads as a line without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// TestTooLongLine: readLog returns an error at a line that has no end. The lines before it count.
func TestTooLongLine(t *testing.T) {
	a := newAnalyzer(&policy.File{})
	err := a.readLog("log", io.MultiReader(strings.NewReader(event(listURI)), endless{}))
	if !errors.Is(err, bufio.ErrTooLong) {
		t.Errorf("got error %v, want %v", err, bufio.ErrTooLong)
	}
	r := a.report()
	expect.Same(t, int64(1), r.Totals.Lists.Count)
	expect.Same(t, bufio.ErrTooLong.Error(), r.Files[0].Problem)
}

// TestExports: readLog finds the events inside the records that exporters of logs write: after words, in objects, in lists, and
// in strings that hold JSON.
func TestExports(t *testing.T) {
	list, watch := strings.TrimSuffix(event(listURI), "\n"), strings.TrimSuffix(event(watchURI), "\n")
	quote := func(s string) string {
		b, err := json.Marshal(s)
		expect.NoError(t, err)
		return string(b)
	}
	// sortMembers returns an event with its members in alphabetical order, as exporters write that parse events.
	sortMembers := func(event string) string {
		var members map[string]any
		expect.NoError(t, json.Unmarshal([]byte(event), &members))
		b, err := json.Marshal(members)
		expect.NoError(t, err)
		return string(b)
	}
	oneList := counts{Lists: 1, FromMemory: 1, Seconds: 0.25}
	oneListAndWatch := counts{Lists: 1, FromMemory: 1, Watches: 1, Seconds: 0.25}
	checkCounts(t, []logCase{
		{name: "EKS, exported to S3", log: "2026-11-20T10:00:00.000Z " + list, want: oneList},
		{
			name: "EKS, a subscription",
			log: `{"messageType":"DATA_MESSAGE","logGroup":"/aws/eks/it/cluster","logEvents":[` +
				`{"id":"1","timestamp":1,"message":` + quote(list) + `},{"id":"2","message":` + quote(watch) + `}]}`,
			want: oneListAndWatch,
		},
		{
			name: "EKS, two records on a line",
			log:  `{"logEvents":[{"message":` + quote(list) + `}]}{"logEvents":[{"message":` + quote(watch) + `}]}`,
			want: oneListAndWatch,
		},
		{
			name: "EKS, Logs Insights",
			log:  `{"@timestamp":"2026-11-20 10:00:00.000","@message":` + sortMembers(list) + `}`,
			want: oneList,
		},
		{
			name: "AKS, an event hub",
			log: `{"records":[{"category":"kube-audit","properties":{"log":` + quote(list+"\n") + `}},` +
				`{"category":"kube-audit","properties":{"log":` + quote(watch) + `}},` +
				`{"category":"guard","properties":{"log":"x"}}]}`,
			want: oneListAndWatch,
		},
		{
			name: "AKS, properties as text",
			log:  `{"category":"kube-audit","properties":` + quote(`{"log":`+quote(list)+`}`) + `}`,
			want: oneList,
		},
		{
			name: "Cloud Logging",
			log:  `{"insertId":"1","jsonPayload":` + sortMembers(watch) + `,"resource":{"type":"k8s_cluster"}}`,
			want: counts{Watches: 1},
		},
		{
			name: "kube-apiserver's webhook",
			log:  `{"kind":"EventList","apiVersion":"audit.k8s.io/v1","items":[` + list + `,` + watch + `]}`,
			want: oneListAndWatch,
		},
		{name: "JSON array", log: "[" + list + "," + watch + "]", want: oneListAndWatch},
		{
			name: "an event inside more arrays than maxDepth, which is a line without an event",
			log:  strings.Repeat("[", maxDepth+2) + list + strings.Repeat("]", maxDepth+2) + "\n" + list,
			want: counts{Lists: 1, FromMemory: 1, Bad: 1, Seconds: 0.25},
		},
	})
}

// TestPolicy: the policy's rule for a resource decides, not the defaults. Here, lists of secrets, pods and configmaps come from
// memory by their rules, and lists of nodes are forwarded by theirs.
func TestPolicy(t *testing.T) {
	f, err := policy.ParseFile("p", []byte(`apiVersion: listproxy.io/v1alpha1
kind: Policy
resources:
- {group: "", resource: secrets, cache: onDemand}
- {group: "", resource: pods, consistentLists: true}
- {group: "", resource: nodes, consistentLists: false}
- {group: "", resource: configmaps, consistentLists: always}
`))
	expect.NoError(t, err)
	r := analyze(t, f, event("/api/v1/secrets?resourceVersion=0")+event("/api/v1/pods")+
		event("/api/v1/configmaps")+event("/api/v1/nodes"))
	expect.Same(t, RequestCounts{Count: 4, FromMemory: 3, Forwarded: 1}, r.Totals.Lists)
}

// TestOrderOfForms: the forms of a row have the same order in each report, also if they differ only in their verbs.
func TestOrderOfForms(t *testing.T) {
	const doubleSlash = "//api/v1/pods" // not canonical, so the form is unknown
	log := event(doubleSlash+"?watch=1") + event(doubleSlash)
	for range 20 { // the order of Go's maps is random
		forms := analyze(t, &policy.File{}, log).Rows[0].Forms
		if len(forms) != 2 || forms[0].Verb != verbList || forms[1].Verb != verbWatch {
			t.Fatalf("got the forms %+v, want the list before the watch", forms)
		}
	}
}

// TestUselessLogs: readLog returns an error that says what to do for a log without lists and watches.
func TestUselessLogs(t *testing.T) {
	for _, test := range []struct {
		name     string
		log      string
		wantSays string
	}{
		{
			name:     "access log of listproxy",
			log:      `time=2026-11-20T10:00:00Z level=ACCESS msg=request target="list pods v1"`,
			wantSays: "--audit-log-path",
		},
		{
			name:     "JSON over several lines",
			log:      "[\n  {\n    \"kind\": \"Event\",\n    \"apiVersion\": \"audit.k8s.io/v1\"\n  }\n]\n",
			wantSays: "jq -c",
		},
		{name: "empty log", log: "", wantSays: "no audit event"},
		{
			name:     "event of a get",
			log:      event("/api/v1/namespaces/a/pods/b", func(e *auditv1.Event) { e.Verb = "get" }),
			wantSays: "no list and no watch among its 1 audit events",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := newAnalyzer(&policy.File{}).readLog("log", strings.NewReader(test.log))
			clitest.Refused(t, err, test.wantSays)
		})
	}
}

// TestNames: in a report, names that clients choose for themselves have no escape sequences of terminals and no credentials.
// Names of more than 253 bytes (maxNameBytes) are cut. All nodes are one user.
func TestNames(t *testing.T) {
	const credential = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbGljZSJ9.c2lnbmF0dXJl"
	log := event(listURI, func(e *auditv1.Event) {
		e.UserAgent = credential
		e.User.Username = "\x1b[31m<script>" + strings.Repeat("x", 500)
	})
	log += event(listURI, func(e *auditv1.Event) { e.User.Username = "system:node:n1" })
	log += event(listURI, func(e *auditv1.Event) { e.User.Username = "system:node:n2" })
	r := analyze(t, &policy.File{}, log)
	if len(r.Rows) != 2 {
		t.Errorf("got the rows %+v, want one for the program and one for both nodes", r.Rows)
	}
	var text bytes.Buffer
	expect.NoError(t, r.writeText(&text, 0))
	for _, forbidden := range []string{credential, "\x1b", strings.Repeat("x", maxNameBytes+1)} {
		proxytest.AssertNotContains(t, text.String(), forbidden)
	}
}

// TestAdvice: a report has advice for each reason to forward, the most frequent reason first. Each advice has an explanation, a
// remedy, and the senders of the most requests.
func TestAdvice(t *testing.T) {
	newestPods, newestSecrets := event("/api/v1/pods"), event("/api/v1/secrets")
	log := strings.Repeat(newestPods, 3) + strings.Repeat(event(watchURI), 2) + newestSecrets
	log += strings.Repeat(event("/api/v1/pods", func(e *auditv1.Event) { e.User.Username = "bob" }), 4)
	r := analyze(t, &policy.File{}, log)
	var got []string
	for _, a := range r.Advice {
		got = append(got, a.What)
		if a.Why == "" || a.Do == "" {
			t.Errorf("the advice %+v lacks Why or Do", a)
		}
	}
	expect.Same(t, []string{"consistent-lists", "watches", "not-cached"}, got)
	expect.Same(t, []Sender{
		{Source: Source{UserAgent: "tool/v1", User: "bob", Resource: "pods"}, Count: 4},
		{Source: Source{UserAgent: "tool/v1", User: "alice", Resource: "pods"}, Count: 3},
	}, r.Advice[0].TopSenders)
}
