package forwarding

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// everybody is who asks. All but the stranger and the anonymous have a token that is good.
var everybody = []string{
	controlplane.Admin, controlplane.Feed, controlplane.Alice, controlplane.Carol, controlplane.Nobody,
	stranger, controlplane.Anonymous,
}

func isHit(r reply) bool { return strings.HasPrefix(r.cacheStatus, "listproxy; hit") }

// agree asks as same does, but for a list that may come from memory: then the flow control's
// headers are not there, and a list that is not exact may have another revision, since other
// resources' changes move it.
func agree(t *testing.T, ask func(*door) reply) reply {
	t.Helper()
	listRevision := regexp.MustCompile(`"metadata":\{"resourceVersion":"[0-9]+"`)
	for range 50 {
		before, got, after := ask(direct), ask(via), ask(direct)
		r := got
		if isHit(got) {
			for _, a := range []*reply{&before, &got, &after} {
				a.Header.Del("X-Kubernetes-Pf-Flowschema-Uid")
				a.Header.Del("X-Kubernetes-Pf-Prioritylevel-Uid")
				a.Header.Del("Content-Length")
				if !strings.HasSuffix(got.cacheStatus, "=exact") && !strings.HasSuffix(got.cacheStatus, "=continue") {
					a.Body = listRevision.ReplaceAllString(a.Body, "")
				}
			}
		}
		if diff(before, after) != "" {
			continue
		}
		if d := diff(before, got); d != "" {
			t.Errorf("%s (-direct +via):\n%s", got.cacheStatus, d)
		}
		return r
	}
	t.Fatal("the API server's own answers keep changing")
	return reply{}
}

// newPending makes pods that nobody will start, and returns a revision that has them all, which
// listproxy has reached.
func newPending(t *testing.T, namespace string, n int) string {
	t.Helper()
	var last *corev1.Pod
	for range n {
		var err error
		last, err = admin.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "pending-"},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.com/main"}}},
		}, metav1.CreateOptions{})
		expect.NoError(t, err)
	}
	poll.Until(t, patience, "listproxy has the last pod", func() bool {
		return isHit(via.do(t, call{path: "/api/v1/pods?resourceVersion=" + last.ResourceVersion}))
	})
	return last.ResourceVersion
}

// TestWhoSeesWhat asks for the same lists as everybody, each time after the admin, from whom the
// answer is then in memory. Everybody gets what the API server gives them.
func TestWhoSeesWhat(t *testing.T) {
	newPending(t, controlplane.TeamA, 6)
	revision := newPending(t, controlplane.TeamB, 5)
	for scope, list := range map[string]string{
		"all":              "/api/v1/pods",
		controlplane.TeamA: "/api/v1/namespaces/team-a/pods",
		controlplane.TeamB: "/api/v1/namespaces/team-b/pods",
	} {
		var first struct{ Metadata metav1.ListMeta }
		page := list + "?limit=2&resourceVersion=" + revision
		if err := json.Unmarshal([]byte(direct.do(t, call{path: page}).Body), &first); err != nil || first.Metadata.Continue == "" {
			t.Fatalf("no first page: %v", err)
		}
		for semantics, path := range map[string]string{
			"any":            list + "?resourceVersion=0",
			"not-older-than": list + "?resourceVersion=" + revision,
			"exact":          list + "?resourceVersionMatch=Exact&resourceVersion=" + revision,
			"page":           page,
			"continue":       list + "?limit=2&continue=" + first.Metadata.Continue,
		} {
			for _, user := range everybody {
				t.Run(scope+"/"+semantics+"/"+user, func(t *testing.T) {
					if got := via.do(t, call{path: path}); !isHit(got) || got.Status != http.StatusOK {
						t.Errorf("as admin: status %d, %s", got.Status, got.cacheStatus)
					}
					got := agree(t, func(d *door) reply { return d.do(t, call{path: path, user: user}) })
					switch {
					case user == controlplane.Admin, user == controlplane.Feed,
						user == controlplane.Alice && scope == controlplane.TeamA:
						if !isHit(got) || got.Status != http.StatusOK {
							t.Errorf("status %d, %s", got.Status, got.cacheStatus)
						}
					case user == stranger:
						wantRefused(t, got, http.StatusUnauthorized, "unknown-caller")
					case user == controlplane.Anonymous:
						wantRefused(t, got, http.StatusForbidden, "credentials")
					default:
						wantRefused(t, got, http.StatusForbidden, "not-allowed")
					}
				})
			}
		}
	}
}

func wantRefused(t *testing.T, r reply, status int, reason string) {
	t.Helper()
	wantForwarded(t, r, reason)
	if r.Status != status {
		t.Errorf("status %d, want %d: %s", r.Status, status, r.Body)
	}
}

// TestOtherRequestsOfEverybody compares what is never answered from memory.
func TestOtherRequestsOfEverybody(t *testing.T) {
	for _, user := range everybody {
		t.Run(user, func(t *testing.T) {
			for _, path := range []string{
				"/api/v1/namespaces/team-a/pods/none", "/api/v1/namespaces/team-b/pods/none", "/api", "/apis",
				"/version", "/healthz", "/metrics/none", "/api/v1/nodes/none",
			} {
				same(t, call{path: path, user: user}, "not-list")
			}
			reason := "not-cached"
			switch user {
			case controlplane.Anonymous:
				reason = "credentials"
			case stranger:
				reason = "unknown-caller"
			}
			same(t, call{path: "/api/v1/secrets?resourceVersion=0", user: user}, reason)
		})
	}
}

// TestFormsOfCredentials writes Authorization in all ways, as someone who may list pods in team-a
// and as someone who may list all.
func TestFormsOfCredentials(t *testing.T) {
	newPending(t, controlplane.TeamA, 1)
	alice, everyone := cp.Token(controlplane.Alice), cp.Token(controlplane.Admin)
	const teamA, all = "/api/v1/namespaces/team-a/pods?resourceVersion=0", "/api/v1/pods?resourceVersion=0"
	forms := map[string][]string{
		"usual":               {"Bearer " + alice},
		"lower case":          {"bearer " + alice},
		"upper case":          {"BEARER " + alice},
		"trailing spaces":     {"Bearer " + alice + "  "},
		"leading space":       {" Bearer " + alice},
		"two spaces":          {"Bearer  " + alice},
		"tab":                 {"Bearer\t" + alice},
		"more words":          {"Bearer " + alice + " and more"},
		"no token":            {"Bearer"},
		"no token, a space":   {"Bearer "},
		"nothing":             {""},
		"another scheme":      {"Basic " + base64.StdEncoding.EncodeToString([]byte("alice:"+alice))},
		"no scheme":           {alice},
		"part of the token":   {"Bearer " + alice[:len(alice)-1]},
		"in another case":     {"Bearer " + strings.ToLower(alice)},
		"two in one":          {"Bearer " + alice + ", Bearer " + everyone},
		"alice and admin":     {"Bearer " + alice, "Bearer " + everyone},
		"admin and alice":     {"Bearer " + everyone, "Bearer " + alice},
		"twice the same":      {"Bearer " + alice, "Bearer " + alice},
		"nothing and admin":   {"", "Bearer " + everyone},
		"stranger and admin":  {"Bearer of-a-stranger", "Bearer " + everyone},
		"Basic and admin":     {"Basic YTpi", "Bearer " + everyone},
		"admin in lower case": {"bearer " + everyone},
	}
	for name, values := range forms {
		for _, path := range []string{teamA, all} {
			t.Run(name+" "+path, func(t *testing.T) {
				for _, user := range []string{controlplane.Alice, controlplane.Admin} {
					via.do(t, call{path: path, user: user}) // what is decided for them, is remembered
				}
				for proto, ask := range map[string]func(*door) reply{
					http2: func(d *door) reply {
						return d.do(t, call{path: path, header: http.Header{"Authorization": values}})
					},
					http1: func(d *door) reply { return d.raw(t, path, values) },
				} {
					got := agree(t, ask)
					if len(values) > 1 && !strings.HasSuffix(got.cacheStatus, "detail=credentials") {
						t.Errorf("%s: %s", proto, got.cacheStatus)
					}
					if isHit(got) && got.Status != http.StatusOK {
						t.Errorf("%s: status %d, %s", proto, got.Status, got.cacheStatus)
					}
				}
			})
		}
	}
}

// raw sends a GET with header values just as they are.
func (d *door) raw(t *testing.T, path string, authorization []string) reply {
	t.Helper()
	conn := d.dial(t)
	request := "GET " + path + " HTTP/1.1\r\nHost: x\r\nUser-Agent: forwarding-test\r\nAudit-Id: 1234\r\n"
	for _, value := range authorization {
		request += "Authorization: " + value + "\r\n"
	}
	if _, err := fmt.Fprint(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	expect.NoError(t, err)
	return d.read(t, res)
}

// TestClaims has callers say who they are by headers that only a front proxy may send.
func TestClaims(t *testing.T) {
	claims := http.Header{
		"X-Remote-User": {"admin"}, "X-Remote-Group": {"system:masters"}, "X-Remote-Uid": {"1"},
		"X-Remote-Extra-Scopes": {"all"}, "X-Forwarded-For": {"10.0.0.1"}, "X-Forwarded-User": {"admin"},
	}
	for _, user := range []string{controlplane.Anonymous, controlplane.Carol, stranger} {
		reason := "not-allowed"
		switch user {
		case controlplane.Anonymous:
			reason = "credentials"
		case stranger:
			reason = "unknown-caller"
		}
		same(t, call{path: "/api/v1/pods?resourceVersion=0", user: user, header: claims}, reason)
		same(t, call{path: "/api/v1/namespaces/team-a/pods/none", user: user, header: claims}, "not-list")
		sameReview(t, call{user: user, header: claims})
	}
}

// sameReview asks the API server who it thinks that a caller is.
func sameReview(t *testing.T, c call) {
	t.Helper()
	header := http.Header{"Content-Type": {"application/json"}}
	maps.Copy(header, c.header)
	c.method, c.path, c.header = http.MethodPost, "/apis/authentication.k8s.io/v1/selfsubjectreviews", header
	c.body = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
	want, got := direct.do(t, c), via.do(t, c)
	if d := diff(want.impersonal(), got.impersonal()); d != "" {
		t.Errorf("as %s, %v (-direct +via):\n%s", c.user, c.header, d)
	}
	wantForwarded(t, got, "not-list")
}

// TestImpersonation has the admin, and others who may not, act as somebody else.
func TestImpersonation(t *testing.T) {
	for name, header := range map[string]http.Header{
		"alice":                    {"Impersonate-User": {controlplane.Alice}},
		"alice as a master":        {"Impersonate-User": {controlplane.Alice}, "Impersonate-Group": {"system:masters", "others"}},
		"nobody known":             {"Impersonate-User": {"mallory"}, "Impersonate-Uid": {"7"}, "Impersonate-Extra-Scopes": {"a", "b"}},
		"a service account":        {"Impersonate-User": {"system:serviceaccount:team-a:robot"}},
		"anonymous":                {"Impersonate-User": {"system:anonymous"}},
		"a group without a user":   {"Impersonate-Group": {"system:masters"}},
		"a uid without a user":     {"Impersonate-Uid": {"7"}},
		"extra without a user":     {"Impersonate-Extra-Scopes": {"a"}},
		"no name":                  {"Impersonate-User": {""}},
		"two users":                {"Impersonate-User": {controlplane.Alice, controlplane.Admin}},
		"of nothing that there is": {"Impersonate-Something": {"else"}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, user := range []string{controlplane.Admin, controlplane.Alice, controlplane.Carol, controlplane.Anonymous} {
				for _, list := range []string{"/api/v1/pods", "/api/v1/namespaces/team-a/pods"} {
					same(t, call{path: list + "?resourceVersion=0", user: user, header: header}, "credentials")
				}
				sameReview(t, call{user: user, header: header})
			}
		})
	}
}

// TestConstrainedImpersonation lets carol create SelfSubjectAccessReviews as alice and nothing
// else: a review that she makes as alice says that alice may list, and she must not see the list.
func TestConstrainedImpersonation(t *testing.T) {
	grant(t, controlplane.Grant{To: []string{controlplane.Carol}, Rules: controlplane.ReviewsAs(controlplane.Alice)})
	asAlice := http.Header{"Impersonate-User": {controlplane.Alice}, "Content-Type": {"application/json"}}
	review := call{
		method: http.MethodPost, path: "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
		user: controlplane.Carol, header: asAlice,
		body: `{"apiVersion":"authorization.k8s.io/v1","kind":"SelfSubjectAccessReview","spec":{"resourceAttributes":` +
			`{"verb":"list","version":"v1","resource":"pods","namespace":"team-a"}}}`,
	}
	poll.Until(t, patience, "carol may review as alice", func() bool {
		r := via.do(t, review)
		return r.Status == http.StatusCreated && strings.Contains(r.Body, `"allowed":true`)
	})
	const list = "/api/v1/namespaces/team-a/pods?resourceVersion=0"
	if r := via.do(t, call{path: list, user: controlplane.Alice}); !isHit(r) {
		t.Errorf("alice herself: %s", r.cacheStatus)
	}
	r := same(t, call{path: list, user: controlplane.Carol, header: asAlice}, "credentials")
	if r.Status != http.StatusForbidden {
		t.Errorf("status %d: %s", r.Status, r.Body)
	}
	wantRefused(t, same(t, call{path: list, user: controlplane.Carol}, "not-allowed"), http.StatusForbidden, "not-allowed")
}
