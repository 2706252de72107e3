package audit

import (
	"context"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
)

// TestSameLines asks the API server and listproxy for the same lists and compares the lines in their
// logs byte for byte, but for the two times and the annotations, which are looked at apart.
func TestSameLines(t *testing.T) {
	client, err := rest.HTTPClientFor(cp.RESTConfig(controlplane.Anonymous))
	if err != nil {
		t.Fatal(err)
	}
	via := startAudited(t, filepath.Join(t.TempDir(), "audit.log"))
	for _, q := range questions(t, client) {
		t.Run(q.name, func(t *testing.T) {
			id := via.hit(t, q)
			q.ask(t, client, cp.URL(), id)
			want, wantEvent := split(t, lineOf(t, upstreamLog, id))
			got, gotEvent := split(t, lineOf(t, via.log, id))
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("the API server's line and listproxy's: %s", diff)
			}
			compareAnnotations(t, wantEvent.Annotations, gotEvent.Annotations)
			for _, event := range []auditv1.Event{wantEvent, gotEvent} {
				received, stage := event.RequestReceivedTimestamp, event.StageTimestamp
				if received.IsZero() || stage.Time.Before(received.Time) {
					t.Errorf("received at %v, complete at %v", received, stage)
				}
			}
		})
	}
}

var (
	timestamp   = regexp.MustCompile(`"(requestReceivedTimestamp|stageTimestamp)":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"`)
	annotations = regexp.MustCompile(`"annotations":\{[^}]*\}`)
)

// split returns a line without what differs between two answers to one question, and the whole event.
func split(t *testing.T, line string) (rest string, event auditv1.Event) {
	t.Helper()
	if err := json.Unmarshal([]byte(line), &event); err != nil {
		t.Fatal(err)
	}
	return annotations.ReplaceAllString(timestamp.ReplaceAllString(line, `"$1":""`), `"annotations":{}`), event
}

// compareAnnotations compares those that both have. The API server alone says by which rule the
// caller was allowed to list; listproxy alone says what it answered from.
func compareAnnotations(t *testing.T, upstream, ours map[string]string) {
	t.Helper()
	upstream, ours = maps.Clone(upstream), maps.Clone(ours)
	if _, ok := upstream["authorization.k8s.io/reason"]; !ok {
		t.Error("the API server gives no reason")
	}
	delete(upstream, "authorization.k8s.io/reason")
	for _, name := range []string{"answered-from", "semantics", "revision", "items", "bytes", "representation"} {
		if ours["listproxy.io/"+name] == "" {
			t.Errorf("no annotation listproxy.io/%s", name)
		}
		delete(ours, "listproxy.io/"+name)
	}
	if diff := cmp.Diff(upstream, ours); diff != "" {
		t.Errorf("annotations: %s", diff)
	}
}

// questions returns lists of every kind, by users of every kind.
func questions(t *testing.T, client *http.Client) []question {
	t.Helper()
	createWidgets(t)
	root, alice := cp.Token(controlplane.Admin), cp.Token(controlplane.Alice)
	const agent = "kubectl/v1.36.3 (linux/amd64) kubernetes/0000000"
	for _, name := range []string{"one", "two", "three"} {
		_, err := admin.CoreV1().ConfigMaps(controlplane.TeamA).Create(t.Context(),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := question{
		name: "first page", token: root, agent: agent,
		path: "/api/v1/namespaces/team-a/configmaps?limit=2",
	}
	var page metav1.PartialObjectMetadataList
	if err := json.Unmarshal(first.ask(t, client, cp.URL(), uuid.NewString()), &page); err != nil || page.Continue == "" {
		t.Fatalf("no continue token: %v", err)
	}
	return []question{
		{name: "cluster-wide", token: root, agent: agent, path: "/api/v1/pods?resourceVersion=0"},
		{name: "namespaced", token: alice, agent: agent, path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"},
		{name: "cluster-scoped", token: root, agent: agent, path: "/api/v1/nodes?resourceVersion=0"},
		{name: "of a group", token: root, agent: agent, path: "/apis/apps/v1/namespaces/team-a/deployments?resourceVersion=0"},
		{name: "named", token: root, agent: agent, path: "/api/v1/namespaces/team-a/configmaps?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "named in any namespace", token: root, agent: agent, path: "/api/v1/configmaps?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "named and cluster-scoped", token: root, agent: agent, path: "/api/v1/nodes?fieldSelector=metadata.name%3Done&resourceVersion=0"},
		{name: "a named namespace", token: root, agent: agent, path: "/api/v1/namespaces?fieldSelector=metadata.name%3Dteam-a&resourceVersion=0"},
		{name: "field selector", token: root, agent: agent, path: "/api/v1/pods?fieldSelector=spec.nodeName%3Da&resourceVersion=0"},
		{name: "label selector", token: root, agent: agent, path: "/api/v1/pods?labelSelector=a+in+%28b%2Cc%29&resourceVersion=0"},
		{name: "first page", token: root, agent: agent, path: first.path + "&resourceVersion=" + page.ResourceVersion},
		{name: "exact", token: alice, agent: agent, path: "/api/v1/namespaces/team-a/pods?resourceVersion=" + page.ResourceVersion + "&resourceVersionMatch=Exact"},
		{name: "next page", token: root, agent: agent, path: "/api/v1/namespaces/team-a/configmaps?continue=" + url.QueryEscape(page.Continue) + "&limit=2"},
		{name: "custom resources", token: root, agent: agent, path: "/apis/example.com/v1/widgets?resourceVersion=0"},
		{name: "a named custom resource", token: root, agent: agent, path: "/apis/example.com/v1/namespaces/team-a/widgets?fieldSelector=metadata.name%3Dw&resourceVersion=0"},
		{
			name: "metadata", token: root, agent: agent, path: "/api/v1/pods?resourceVersion=0",
			accept: "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1",
		},
		{name: "service account", token: serviceAccount(t), agent: agent, path: "/api/v1/namespaces/team-a/pods?resourceVersion=0"},
		{name: "long user agent", token: root, agent: strings.Repeat("x", 1030), path: "/api/v1/pods?resourceVersion=0"},
		{name: "odd user agent", token: root, agent: "<\"\\&\xff\xc3\xa9>", path: "/api/v1/pods?resourceVersion=0"},
	}
}

// serviceAccount returns the token of a new service account that may list what is in team-a.
func serviceAccount(t *testing.T) string {
	t.Helper()
	ctx, meta := t.Context(), metav1.ObjectMeta{Name: "audited", Namespace: controlplane.TeamA}
	if _, err := admin.CoreV1().ServiceAccounts(meta.Namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: meta}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	rbac := admin.RbacV1()
	_, err := rbac.Roles(meta.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{Verbs: []string{"list"}, APIGroups: []string{""}, Resources: []string{"pods"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = rbac.RoleBindings(meta.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: meta.Name, Namespace: meta.Namespace}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	// The authorizer learns of it by a watch.
	err = wait.PollUntilContextTimeout(ctx, pollEvery, patience, true, func(ctx context.Context) (bool, error) {
		review, err := admin.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User:               "system:serviceaccount:" + meta.Namespace + ":" + meta.Name,
				ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "list", Resource: "pods", Version: "v1", Namespace: meta.Namespace},
			},
		}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	})
	if err != nil {
		t.Fatal(err)
	}
	request, err := admin.CoreV1().ServiceAccounts(meta.Namespace).CreateToken(ctx, meta.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}
