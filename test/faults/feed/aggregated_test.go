package feed

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/ask"
	"github.com/listproxy/listproxy/test/harness/poll"
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

// aggregate starts a server that answers for the group name.feed.test.
func aggregate(t *testing.T, c *cluster, name string, server *httptest.Server) {
	t.Helper()
	listener, err := net.Listen("tcp", "localhost:0")
	expect.NoError(t, err)
	server.Listener = listener
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections() // a watch may be open
		server.Close()
	})
	c.write(t, http.MethodPost, "/api/v1/namespaces/team-a/services", fieldsOf{
		"apiVersion": "v1", "kind": "Service", "metadata": fieldsOf{"name": name},
		"spec": fieldsOf{"type": "ExternalName", "externalName": "localhost"},
	})
	register(t, c, name+".feed.test", fieldsOf{
		"namespace": controlplane.TeamA, "name": name, "port": listener.Addr().(*net.TCPAddr).Port,
	})
}

// Rule 10: what another server answers is forwarded, whether it answers or not.
func TestAggregatedThatIsDown(t *testing.T) {
	harness.Long(t)
	t.Parallel()
	r := newRig(t, shared, rigOptions{})
	register(t, r.cluster, "down.feed.test", fieldsOf{"namespace": controlplane.TeamA, "name": "nowhere"})
	path := "/apis/down.feed.test/v1/things"
	r.until("the API server to know that there is no such server", func() error {
		a, err := r.direct.Get(t.Context(), path+"?resourceVersion=0")
		if err == nil && a.Code != http.StatusServiceUnavailable {
			err = errors.New(a.String())
		}
		return err
	})
	a := r.await(fwdAggregated, path, anyVersion())
	direct, err := r.direct.Get(t.Context(), path+"?resourceVersion=0")
	expect.NoError(t, err)
	if a.Code != direct.Code || string(a.Body) != string(direct.Body) {
		t.Errorf("got %s, and directly %s", a, direct)
	}
}

// Rule 10: it may answer each user differently.
func TestAggregatedByUser(t *testing.T) {
	harness.Long(t)
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
	r := newRig(t, shared, rigOptions{})
	aggregate(t, r.cluster, "users", server)
	path := "/apis/users.feed.test/v1/things?resourceVersion=0"
	for _, user := range []string{controlplane.Admin, controlplane.Feed, controlplane.Admin} {
		through := ask.MustNew(t, r.proxy.RESTConfig(r.RESTConfig(user)), patience)
		direct := ask.MustNew(t, r.RESTConfig(user), patience)
		r.until("the aggregated server's answer", func() error {
			want, err := direct.Get(t.Context(), path)
			if err == nil && want.Code != http.StatusOK {
				err = fmt.Errorf("directly: %s", want)
			}
			if err != nil {
				return err
			}
			got, err := through.Get(t.Context(), path)
			if err != nil {
				return err
			}
			if got.Code == http.StatusOK && string(got.Body) != string(want.Body) {
				return poll.Wrong(fmt.Sprintf("%s got %s, and directly %s", user, got, want))
			}
			if got.Code != http.StatusOK || got.Source() != fwdAggregated {
				return fmt.Errorf("%s got %s", user, got)
			}
			return nil
		})
	}
	if n := r.count(kind{APIVersion: "users.feed.test/v1", Plural: "things"}, anyWatch); n != 0 {
		t.Errorf("%d watches of an aggregated resource", n)
	}
}
