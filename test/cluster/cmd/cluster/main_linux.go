// Command cluster shows listproxy in a Kubernetes of its own, until Ctrl-C: see package cluster. It takes no arguments.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/cluster"
	"github.com/listproxy/listproxy/test/controlplane"
)

// The two forwarded Services for which there are kubeconfigs.
const apiServer, listproxy = "kube-apiserver", "listproxy"

// forwarded are the Services that are reachable from outside, each at one of the ports that cluster.Enter opens.
var forwarded = []struct{ name, service string }{
	{apiServer, "kubernetes.default:443"},
	{listproxy, "listproxy.listproxy:443"},
	{"status page", "listproxy-admin.listproxy:8081"},
	{"Jaeger", "jaeger.tracing:16686"},
	{"Prometheus", "prometheus.monitoring:9090"},
}

func log(line string) { _, _ = fmt.Fprintln(os.Stderr, line) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	code, err := run(ctx)
	stop()
	if err != nil {
		log("cluster: " + err.Error())
		code = max(code, 1)
	}
	os.Exit(code)
}

// run shows the cluster inside its namespaces. The first process enters them, and returns the exit code of the second.
func run(ctx context.Context) (code int, err error) {
	if cluster.Inside() {
		return 0, show(ctx)
	}
	return cluster.Enter(ctx, log, len(forwarded))
}

// show starts the cluster, prints how to use it, and waits until ctx or the cluster ends.
func show(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	begun := time.Now()
	c, err := cluster.Start(ctx, log, cancel)
	if err != nil {
		return err
	}
	log(fmt.Sprintf("the cluster is ready after %.0fs; installing listproxy", time.Since(begun).Seconds()))
	if _, err := c.Install(ctx, "consistentLists=true,watches=true"); err != nil {
		return err
	}
	log(fmt.Sprintf("listproxy is ready after %.0fs", time.Since(begun).Seconds()))
	for _, args := range []string{
		"rollout status deployment/jaeger -n tracing --timeout=5m", "rollout status deployment/prometheus -n monitoring --timeout=5m",
	} {
		if _, err := c.Kubectl(ctx, "", strings.Fields(args)...); err != nil {
			return err
		}
	}
	addresses := map[string]string{}
	for n, f := range forwarded {
		if addresses[f.name], err = cluster.Forward(n, f.service); err != nil {
			return err
		}
	}
	direct := c.RESTConfig(controlplane.Admin)
	through, err := c.Through(ctx, direct)
	if err != nil {
		return err
	}
	kubeconfigs := map[string]string{}
	for name, config := range map[string]*rest.Config{apiServer: direct, listproxy: through} {
		config.Host = "https://" + addresses[name]
		kubeconfigs[name] = filepath.Join(filepath.Dir(c.Dir()), name+".kubeconfig") // beside the control plane's files
		if err := controlplane.WriteKubeconfig(kubeconfigs[name], config); err != nil {
			return err
		}
	}
	fmt.Printf(`
In another terminal:

  export KUBECONFIG=%[1]s             # kube-apiserver itself
  %[3]s get pods --all-namespaces
  export KUBECONFIG=%[2]s             # through listproxy
  %[3]s get --raw '/api/v1/pods?resourceVersion=0' -v=6

What listproxy has in memory   http://%[4]s/statusz
Its traces, in Jaeger          http://%[5]s/api/traces?service=listproxy (built from its Go module, Jaeger has no web pages)
Its metrics, in Prometheus     http://%[6]s/api/v1/query?query=listproxy_requests_total

Ctrl-C removes all of it.
`, kubeconfigs[apiServer], kubeconfigs[listproxy], c.Binaries().Kubectl,
		addresses["status page"], addresses["Jaeger"], addresses["Prometheus"])
	<-ctx.Done()
	return context.Cause(ctx)
}
