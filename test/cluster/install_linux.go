package cluster

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/listproxy/listproxy/test/controlplane"
	"github.com/listproxy/listproxy/test/controlplane/binaries"
)

// Namespace is the namespace of listproxy, which enforces the restricted Pod Security Standard. The Helm release has the same
// name.
const Namespace = "listproxy"

// ClusterIP is the address of listproxy's Service, as in docs/clients.md.
const ClusterIP = "10.0.0.100"

// Helm runs Helm as the admin, for listproxy's release.
func (c *Cluster) Helm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "helm"), append(args, "--namespace", Namespace)...) // #nosec G204
	cmd.Env = controlplane.Environment(c.KubeconfigPath(controlplane.Admin), dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("helm %s: %w: %s", args[0], err, binaries.Tail(stderr.Bytes()))
	}
	return string(out), nil
}

// Install creates the namespace, installs or upgrades the chart with values (as --set takes them), and waits until all
// replicas are ready. It returns the notes that Helm prints. Every installation sends traces to Jaeger.
func (c *Cluster) Install(ctx context.Context, values ...string) (notes string, err error) {
	const namespaceManifest = "{apiVersion: v1, kind: Namespace, metadata: {name: " + Namespace +
		", labels: {pod-security.kubernetes.io/enforce: restricted}}}"
	if err := c.Apply(ctx, namespaceManifest); err != nil {
		return "", err
	}
	args := []string{
		"upgrade", "--install", Namespace, c.Chart, "--wait", "--timeout=5m",
		"--set=service.clusterIP=" + ClusterIP + ",tracing.endpoint=http://jaeger.tracing:" + otlpPort,
	}
	for _, value := range values {
		args = append(args, "--set="+value)
	}
	return c.Helm(ctx, args...)
}

// Through returns a copy of direct whose requests go to listproxy's Service, with listproxy's CA.
func (c *Cluster) Through(ctx context.Context, direct *rest.Config) (*rest.Config, error) {
	admin, err := kubernetes.NewForConfig(c.RESTConfig(controlplane.Admin))
	if err != nil {
		return nil, err
	}
	secret, err := admin.CoreV1().Secrets(Namespace).Get(ctx, "listproxy-tls", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	through := rest.CopyConfig(direct)
	through.Host, through.CAData = "https://"+ClusterIP, secret.Data["ca.crt"]
	through.ServerName = Namespace + "." + Namespace + ".svc"
	return through, nil
}
