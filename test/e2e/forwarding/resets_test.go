package forwarding

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness"
	"github.com/listproxy/listproxy/test/harness/hop"
)

// visitor is a caller with a connection and a token of its own.
type visitor struct {
	door  *door
	token string

	reads, writes, badReads, badWrites, ends atomic.Int64
}

// felt says whether somebody else was in the way.
func (v *visitor) felt() bool { return v.badReads.Load()+v.badWrites.Load()+v.ends.Load() > 0 }

func (v *visitor) send(ctx context.Context, method, path, body string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, method, v.door.url+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+v.token)
	r.Header.Set("Content-Type", "application/json")
	res, err := v.door.clients[http2].Do(r)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d", res.StatusCode)
		_ = res.Body.Close()
	}
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// ask counts a request, and whether it failed.
func (v *visitor) ask(ctx context.Context, asked, failed *atomic.Int64, method, path, body string) {
	answer, err := v.send(ctx, method, path, body)
	if err == nil {
		_, err = io.Copy(io.Discard, answer)
		_ = answer.Close()
	}
	switch {
	case err == nil:
		asked.Add(1)
	case ctx.Err() == nil:
		asked.Add(1)
		failed.Add(1)
	}
}

// TestResets: some balancers close a connection to kube-apiserver when a client gives up a request on
// it. A caller who gives up many, like an impatient dashboard, has a connection of its own there
// directly; through listproxy it shares one with few of the others.
func TestResets(t *testing.T) {
	harness.Long(t)
	const visitors, watches, resets = 12, 2, 100
	const ns = "resets" // the same names each time: they decide who shares a connection
	h := hop.Run(t, cp.URL(), cp.CA())
	h.CloseAtResets()
	configs := func(user string) *rest.Config { return h.RESTConfig(cp.RESTConfig(user)) }
	p := startProcess(t, harness.ProxyOptions{Upstream: configs(controlplane.Feed)})
	_, err := admin.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, metav1.CreateOptions{})
	expect.NoError(t, err)
	t.Cleanup(func() {
		_ = admin.CoreV1().Namespaces().Delete(context.WithoutCancel(t.Context()), ns, metav1.DeleteOptions{})
	})
	mayEdit(t, ns, "system:serviceaccounts:"+ns)
	newConfigMap(t, ns, "one", nil)
	core := "/api/v1/namespaces/" + ns + "/configmaps"
	watch := core + "?watch=true&fieldSelector=metadata.name=one"
	const configMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one"}}`

	for _, side := range []struct {
		name    string
		configs func(user string) *rest.Config
		may     int // feel it
	}{
		{"directly", configs, 0},
		{"through listproxy", throughProxy(p), visitors / 2}, // it has more than a dozen connections
	} {
		visit := func(name string) *visitor {
			token, err := cp.CreateServiceAccountToken(t.Context(), ns, name)
			expect.NoError(t, err)
			v := &visitor{door: doorOf(t, side.configs), token: token}
			v.ask(t.Context(), &v.reads, &v.badReads, http.MethodGet, core+"/one", "") // listproxy knows it from now on
			return v
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var all []*visitor
		var running sync.WaitGroup
		for i := range visitors {
			v := visit(fmt.Sprint("visitor-", i))
			all = append(all, v)
			running.Go(func() {
				for ctx.Err() == nil {
					v.ask(ctx, &v.reads, &v.badReads, http.MethodGet, core+"/one", "")
					v.ask(ctx, &v.writes, &v.badWrites, http.MethodPut, core+"/one?dryRun=All", configMap)
				}
			})
			for range watches {
				running.Go(func() {
					for ctx.Err() == nil {
						var ended, failed atomic.Int64
						v.ask(ctx, &ended, &failed, http.MethodGet, watch, "")
						v.ends.Add(ended.Load())
					}
				})
			}
		}
		impatient := visit("impatient")
		for range resets {
			once, giveUp := context.WithCancel(ctx)
			if answer, err := impatient.send(once, http.MethodGet, watch, ""); err == nil {
				_, _ = bufio.NewReader(answer).ReadString('\n')
				giveUp()
				_ = answer.Close()
			}
			giveUp()
		}
		cancel()
		running.Wait()
		var felt int
		var sum visitor
		for _, v := range all {
			if v.felt() {
				felt++
			}
			sum.reads.Add(v.reads.Load())
			sum.writes.Add(v.writes.Load())
			sum.badReads.Add(v.badReads.Load())
			sum.badWrites.Add(v.badWrites.Load())
			sum.ends.Add(v.ends.Load())
		}
		harness.Log(fmt.Sprintf("resets, %s: of %d reads failed %d, of %d writes %d; %d watches ended %d times; %d of %d callers felt it",
			side.name, sum.reads.Load(), sum.badReads.Load(), sum.writes.Load(), sum.badWrites.Load(), visitors*watches, sum.ends.Load(), felt, visitors))
		if felt > side.may {
			t.Errorf("%s: %d of %d callers felt the resets of another", side.name, felt, visitors)
		}
		if failed, all := sum.badReads.Load(), sum.reads.Load(); failed > all/50 { // each is sent once more
			t.Errorf("%s: of %d reads %d failed", side.name, all, failed)
		}
	}
}
