package feed

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
)

const apiServices = "/apis/apiregistration.k8s.io/v1/apiservices"

// register makes the API server send a group to a service.
func register(t *testing.T, c *cluster, group string, service fieldsOf) {
	t.Helper()
	c.write(t, http.MethodPost, apiServices, fieldsOf{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": fieldsOf{"name": "v1." + group},
		"spec": fieldsOf{
			"group": group, "version": "v1", "groupPriorityMinimum": 1000, "versionPriority": 10,
			"insecureSkipTLSVerify": true, "service": service,
		},
	})
}

// Rule 10: what another server answers is forwarded, whether it answers or not.
func TestAggregatedThatIsDown(t *testing.T) {
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	register(t, r.cluster, "down.feed.test", fieldsOf{"namespace": controlplane.TeamA, "name": "nowhere"})
	path := "/apis/down.feed.test/v1/things"
	a := r.await(fwdAggregated, path, anyVersion())
	direct, err := r.direct.get(t.Context(), path+"?resourceVersion=0")
	if err != nil {
		t.Fatal(err)
	}
	if a.code != http.StatusServiceUnavailable || a.code != direct.code || string(a.body) != string(direct.body) {
		t.Errorf("got %s, and directly %s", a, direct)
	}
}

// Rule 10: it may answer each user differently.
func TestAggregatedByUser(t *testing.T) {
	t.Parallel()
	// The API server adds who asks, in headers.
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if req.URL.Path != "/apis/users.feed.test/v1/things" {
			_, _ = io.WriteString(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"users.feed.test/v1","resources":[{"name":"things","singularName":"thing","namespaced":false,"kind":"Thing","verbs":["list","watch"]}]}`)
			return
		}
		_, _ = fmt.Fprintf(w, `{"kind":"ThingList","apiVersion":"users.feed.test/v1","metadata":{"resourceVersion":"7"},"items":[{"metadata":{"name":%q,"resourceVersion":"7"}}]}`+"\n", req.Header.Get("X-Remote-User"))
	}))
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		t.Fatal(err)
	}
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(server.Close)

	r := newRig(t, shared, rigOptions{})
	r.write(t, http.MethodPost, "/api/v1/namespaces/team-a/services", fieldsOf{
		"apiVersion": "v1", "kind": "Service", "metadata": fieldsOf{"name": "users"},
		"spec": fieldsOf{"type": "ExternalName", "externalName": "localhost"},
	})
	register(t, r.cluster, "users.feed.test", fieldsOf{
		"namespace": controlplane.TeamA, "name": "users", "port": listener.Addr().(*net.TCPAddr).Port,
	})
	path := "/apis/users.feed.test/v1/things?resourceVersion=0"
	for _, user := range []string{controlplane.Admin, controlplane.Feed, controlplane.Admin} {
		through, err := newClient(r.proxy.RESTConfig(r.RESTConfig(user)))
		if err != nil {
			t.Fatal(err)
		}
		direct, err := newClient(r.RESTConfig(user))
		if err != nil {
			t.Fatal(err)
		}
		r.until("the aggregated server's answer", func() error {
			want, err := direct.get(t.Context(), path)
			if err == nil && want.code != http.StatusOK {
				err = fmt.Errorf("directly: %s", want)
			}
			if err != nil {
				return err
			}
			got, err := through.get(t.Context(), path)
			if err != nil {
				return err
			}
			if got.code == http.StatusOK && string(got.body) != string(want.body) {
				return wrongError{fmt.Sprintf("%s got %s, and directly %s", user, got, want)}
			}
			if got.code != http.StatusOK || got.source() != fwdAggregated {
				return fmt.Errorf("%s got %s", user, got)
			}
			return nil
		})
	}
	if n := r.count(kind{apiVersion: "users.feed.test/v1", plural: "things"}, anyWatch); n != 0 {
		t.Errorf("%d watches of an aggregated resource", n)
	}
}
