package operators

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	rbacv1 "k8s.io/api/rbac/v1"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/kinds"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestAuditLines: for a list from memory, listproxy's audit log has the line that kube-apiserver's audit log has for the same
// list. Three parts differ: the times, the annotations, and the stage. listproxy writes its line before the answer
// (ResponseStarted), and kube-apiserver after it (ResponseComplete).
func TestAuditLines(t *testing.T) {
	t.Parallel()
	upstream := ask.MustNew(t, cp.RESTConfig(controlplane.Anonymous), patience)
	log := filepath.Join(t.TempDir(), "audit.log")
	p := harness.RunProxy(t, harness.ProxyOptions{Upstream: cp.RESTConfig(controlplane.Feed), Args: []string{
		// The history window is longer than the test, since some lists name a revision of its beginning.
		"--audit-log-path", log, "--eager", "pods,configmaps", "--history-window", "1h",
	}})
	client := ask.MustNew(t, p.RESTConfig(cp.RESTConfig(controlplane.Anonymous)), patience)
	for _, q := range questions(t, upstream) {
		t.Run(q.name, func(t *testing.T) {
			// The same Audit-Id goes to both servers, so that their lines are found and can be equal.
			var id string
			poll.Until(t, patience, "an answer from memory", func() bool {
				id = uuid.NewString()
				return q.ask(t, client, id).FromMemory()
			})
			q.ask(t, upstream, id)
			want, wantEvent := parseLine(t, awaitLine(t, upstreamLog, id))
			got, gotEvent := parseLine(t, awaitLine(t, log, id))
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("lines (-kube-apiserver +listproxy):\n%s", diff)
			}
			compareAnnotations(t, wantEvent.Annotations, gotEvent.Annotations)
			if wantEvent.Stage != auditv1.StageResponseComplete || gotEvent.Stage != auditv1.StageResponseStarted {
				t.Errorf("the stages are %s at kube-apiserver and %s at listproxy", wantEvent.Stage, gotEvent.Stage)
			}
			for _, event := range []auditv1.Event{wantEvent, gotEvent} {
				received, stage := event.RequestReceivedTimestamp, event.StageTimestamp
				if received.IsZero() || stage.Time.Before(received.Time) {
					t.Errorf("the stage's time %v is before the request's %v", stage, received)
				}
			}
		})
	}
}

var (
	timestamp   = regexp.MustCompile(`"(requestReceivedTimestamp|stageTimestamp)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"`)
	annotations = regexp.MustCompile(`"annotations":\{[^}]*\}`)
	stages      = regexp.MustCompile(`"stage":"Response(Complete|Started)"`)
)

// parseLine returns the text of a line without what may differ (times, annotations and stage), and the event of the whole line.
func parseLine(t *testing.T, line string) (stable string, event auditv1.Event) {
	t.Helper()
	expect.NoError(t, json.Unmarshal([]byte(line), &event))
	line = stages.ReplaceAllString(timestamp.ReplaceAllString(line, `"$1":""`), `"stage":""`)
	return annotations.ReplaceAllString(line, `"annotations":{}`), event
}

// compareAnnotations requires that both events have the same annotations, except for those that only one of the two can know.
// kube-apiserver says which rule allowed the list. listproxy says where its answer came from. It removes these from the maps.
func compareAnnotations(t *testing.T, upstream, ours map[string]string) {
	t.Helper()
	if _, ok := upstream["authorization.k8s.io/reason"]; !ok {
		t.Error("kube-apiserver's line has no annotation authorization.k8s.io/reason")
	}
	delete(upstream, "authorization.k8s.io/reason")
	for _, name := range []string{"answered-from", "semantics", "revision", "items", "representation"} {
		if ours["listproxy.io/"+name] == "" {
			t.Errorf("no annotation listproxy.io/%s", name)
		}
		delete(ours, "listproxy.io/"+name)
	}
	if diff := gocmp.Diff(upstream, ours); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}

// question is a list that is sent to both servers.
type question struct {
	name      string
	path      string
	token     string
	userAgent string // "": kubectl's
	accept    string // "": JSON
	// impersonate is the user whom the caller impersonates, or "".
	impersonate string
}

// ask sends a question with an ID to a server and returns the answer, which must be a list.
func (q question) ask(t *testing.T, server *ask.Client, id string) ask.Answer {
	t.Helper()
	userAgent := cmp.Or(q.userAgent, "kubectl/v1.36.3 (linux/amd64) kubernetes/0000000")
	server = server.WithHeader("Authorization", "Bearer "+q.token).WithHeader("Audit-Id", id).WithHeader("User-Agent", userAgent)
	if q.impersonate != "" {
		server = server.WithHeader("Impersonate-User", q.impersonate)
	}
	a, err := server.GetAs(t.Context(), cmp.Or(q.accept, ask.JSON), q.path)
	if err != nil || a.Code != http.StatusOK {
		t.Fatalf("%s: %s, %v", q.path, a, err)
	}
	return a
}

// questions creates objects, and returns lists of every kind by users of every kind.
func questions(t *testing.T, upstream *ask.Client) []question {
	t.Helper()
	create := func(path string, object any) {
		t.Helper()
		_, err := direct.Do(t.Context(), http.MethodPost, path, object)
		expect.NoError(t, err)
	}
	widgets := kinds.Kind{APIVersion: "example.com/v1", Name: "Widget", Plural: "widgets"}
	create(kinds.Definitions, widgets.Definition())
	configMaps := kinds.Kind{APIVersion: "v1", Name: "ConfigMap", Plural: "configmaps"}
	for _, name := range []string{"one", "two", "three"} {
		create(configMaps.Path(controlplane.TeamA), configMaps.Object(name))
	}
	awaitServed(t, direct, widgets.Path(""))
	root, alice := cp.Token(controlplane.Admin), cp.Token(controlplane.Alice)
	first := question{
		name: "first page", token: root,
		path: "/api/v1/namespaces/team-a/configmaps?limit=2",
	}
	page := first.ask(t, upstream, uuid.NewString()).Meta()
	if page.Continue == "" {
		t.Fatal("no continue token")
	}
	account := serviceAccount(t)
	return []question{
		{name: "cluster-wide", token: root, path: "/api/v1/pods?resourceVersion=0"},
		{name: "namespaced", token: alice, path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"},
		{name: "cluster-scoped", token: root, path: "/api/v1/nodes?resourceVersion=0"},
		{name: "of a group", token: root, path: "/apis/apps/v1/namespaces/team-a/deployments?resourceVersion=0"},
		{name: "named", token: root, path: "/api/v1/namespaces/team-a/configmaps?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "named in any namespace", token: root, path: "/api/v1/configmaps?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "named and cluster-scoped", token: root, path: "/api/v1/nodes?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "a named namespace", token: root, path: "/api/v1/namespaces?fieldSelector=metadata.name%3Dteam-a&resourceVersion=0"},
		{name: "field selector", token: root, path: "/api/v1/pods?fieldSelector=spec.nodeName%3Da&resourceVersion=0"},
		{name: "label selector", token: root, path: "/api/v1/pods?labelSelector=a+in+%28b%2Cc%29&resourceVersion=0"},
		{name: "first page", token: root, path: first.path + "&resourceVersion=" + page.ResourceVersion},
		{name: "exact", token: alice, path: "/api/v1/namespaces/team-a/pods?resourceVersion=" + page.ResourceVersion + "&resourceVersionMatch=Exact"},
		{name: "next page", token: root, path: "/api/v1/namespaces/team-a/configmaps?continue=" + url.QueryEscape(page.Continue) + "&limit=2"},
		{name: "custom resources", token: root, path: "/apis/example.com/v1/widgets?resourceVersion=0"},
		{
			name: "a named custom resource", token: root,
			path: "/apis/example.com/v1/namespaces/team-a/widgets?fieldSelector=metadata.name%3Dw&resourceVersion=0",
		},
		{
			name: "metadata", token: root, path: "/api/v1/pods?resourceVersion=0",
			accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		},
		{name: "service account", token: account, path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"},
		{name: "service account as alice", token: account, impersonate: controlplane.Alice, path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"},
		{name: "long user agent", token: root, userAgent: strings.Repeat("x", 1030), path: "/api/v1/pods?resourceVersion=0"},
		{name: "odd user agent", token: root, userAgent: "<\"\\&\xff\xc3\xa9>", path: "/api/v1/pods?resourceVersion=0"},
	}
}

// serviceAccount returns the token of a new service account that may list pods in team-a, and impersonate alice.
func serviceAccount(t *testing.T) string {
	t.Helper()
	token, err := cp.CreateServiceAccountToken(t.Context(), controlplane.TeamA, "audited")
	expect.NoError(t, err)
	to := []string{"team-a/audited"}
	lists := []rbacv1.PolicyRule{controlplane.Rule("list", "", "pods")}
	impersonates := []rbacv1.PolicyRule{controlplane.Rule("impersonate", "", "users", controlplane.Alice)}
	expect.NoError(t, cp.GrantAll(t.Context(),
		controlplane.Grant{To: to, Namespace: controlplane.TeamA, Rules: lists}, controlplane.Grant{To: to, Rules: impersonates}))
	cfg := cp.RESTConfig(controlplane.Anonymous)
	cfg.BearerToken = token
	account := ask.MustNew(t, cfg, patience)
	awaitServed(t, account, "/api/v1/namespaces/team-a/pods") // kube-apiserver's authorizer learns of a grant by a watch
	awaitServed(t, account.WithHeader("Impersonate-User", controlplane.Alice), "/api/v1/namespaces/team-a/pods")
	return token
}

// awaitServed waits until a list is answered.
func awaitServed(t *testing.T, client *ask.Client, path string) {
	t.Helper()
	err := poll.Retry(t.Context(), path+" to be served", func() error {
		_, err := client.Do(t.Context(), http.MethodGet, path, nil)
		return err
	})
	expect.NoError(t, err)
}

// awaitLine returns the only line of an audit log that has an ID. It waits, since kube-apiserver may write the line after the
// client has read the answer.
func awaitLine(t *testing.T, path, id string) string {
	t.Helper()
	var found []string
	poll.Until(t, patience, "a line with ID "+id+" in "+path, func() bool {
		log, _ := os.ReadFile(path) // #nosec G304 -- the file appears with its first line
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, `"auditID":"`+id+`"`) && strings.HasSuffix(line, "\n") { // else half written
				found = append(found, line)
			}
		}
		return len(found) > 0
	})
	if len(found) > 1 {
		t.Fatalf("%d lines with ID %s", len(found), id)
	}
	return found[0]
}
