package chart

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/cmd/listproxy/kubeconfig"
	"github.com/listproxy/listproxy/test/expect"
	"github.com/listproxy/listproxy/test/harness/poll"
)

// TestClients: a pod in a namespace that clients.namespaces names has a list from memory, with
// nothing but its account's directory and the ConfigMap; and from a namespace that is named no more
// the ConfigMap goes.
func TestClients(t *testing.T) {
	c := newCluster(t)
	const team, other = "team-pods", "team-others"
	c.robot(t, team)
	c.namespace(t, other)
	r := c.newRelease(t, "listproxy", "proxies")
	if _, err := r.tryApply(t, "clients: {namespaces: ["+team+"]}"); err == nil || !strings.Contains(err.Error(), "clients.caBundle") {
		t.Fatalf("without the cluster's CA: %v", err)
	}
	c.rootCA(t)
	r.apply(t, "clients: {namespaces: ["+team+"]}")
	pod := r.run(t)

	client := r.clientPod(t, "try", "--wait=2m", listOf(team))
	printed := c.runToEnd(t, team, client, buildImage(t))
	if !strings.Contains(printed["client"], "; hit") {
		t.Errorf("the pod's list:\n%s", printed["client"])
	}
	pod.stop(t)
	checkClientsConfigMap(t, r, team)

	for _, named := range []string{other, ""} {
		r.apply(t, "clients: {namespaces: ["+named+"]}")
		for _, namespace := range []string{team, other} {
			_, err := c.admin.CoreV1().ConfigMaps(namespace).Get(t.Context(), "listproxy-client", metav1.GetOptions{})
			if namespace == named && err != nil || namespace != named && !apierrors.IsNotFound(err) {
				t.Errorf("with namespaces [%s], that of %s: %v", named, namespace, err)
			}
		}
	}
}

// robot is the account of pods that are clients, in a namespace of their own, where it may list pods.
const robot = "robot"

func listOf(namespace string) string {
	return "/api/v1/namespaces/" + namespace + "/pods?resourceVersion=0"
}

func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := c.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{})
	expect.NoError(t, err)
}

func (c *cluster) robot(t *testing.T, namespace string) {
	t.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: robot}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: robot},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: robot},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: robot, Namespace: namespace}},
	}
	c.namespace(t, namespace)
	_, err := c.admin.CoreV1().ServiceAccounts(namespace).Create(t.Context(), account, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{})
	expect.NoError(t, err)
	c.settle(t)
}

// rootCA makes the ConfigMap that kube-controller-manager makes in each namespace.
func (c *cluster) rootCA(t *testing.T) {
	t.Helper()
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(c.cp.CA())}}
	_, err := c.admin.CoreV1().ConfigMaps("default").Create(t.Context(), ca, metav1.CreateOptions{})
	expect.NoError(t, err)
}

// clientPod has a client with client-go's own loading, as docs/clients.md has it: KUBECONFIG is all that
// it is told.
func (r *release) clientPod(t *testing.T, args ...string) corev1.PodSpec {
	t.Helper()
	automount := true
	return corev1.PodSpec{
		ServiceAccountName:           robot,
		AutomountServiceAccountToken: &automount,
		SecurityContext:              r.deployment(t).Spec.Template.Spec.SecurityContext,
		Volumes: []corev1.Volume{{Name: "listproxy", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "listproxy-client"},
		}}}},
		Containers: []corev1.Container{{
			Name:         "client",
			Args:         args,
			Env:          []corev1.EnvVar{{Name: "KUBECONFIG", Value: "/etc/listproxy/kubeconfig"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "listproxy", MountPath: "/etc/listproxy", ReadOnly: true}},
		}},
	}
}

// TestBypass: when all replicas are away, a pod goes on with what it has, past listproxy, and comes
// back to it. The API server and listproxy have two addresses and one port, which is the Service's.
func TestBypass(t *testing.T) {
	const team = "team-pods"
	c := newCluster(t)
	c.robot(t, team)
	c.rootCA(t)
	c.settle(t)
	_, text, err := net.SplitHostPort(strings.TrimPrefix(c.cp.URL(), "https://"))
	expect.NoError(t, err)
	port, err := strconv.Atoi(text)
	expect.NoError(t, err)
	r := c.newRelease(t, "listproxy", "proxies")
	with := func(bypass bool) string {
		return fmt.Sprintf("{bypass: %t, bindAddress: 127.0.0.2, ports: {https: %[2]d}, service: {port: %[2]d}, clients: {namespaces: [%s]}}", bypass, port, team)
	}
	r.apply(t, with(false))
	if _, err := r.tryApply(t, with(true)); err == nil || !strings.Contains(err.Error(), "no EndpointSlice of the Service kubernetes") {
		t.Fatalf("a bypass to API servers that nobody knows: %v", err)
	}
	name, number, ready := "https", int32(port), true // #nosec G115 -- a port
	kubernetes := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "kubernetes", Labels: map[string]string{discoveryv1.LabelServiceName: "kubernetes"}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &number}},
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{apiServer}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}}},
	}
	_, err = c.admin.DiscoveryV1().EndpointSlices("default").Create(t.Context(), kubernetes, metav1.CreateOptions{})
	expect.NoError(t, err)

	// kubectl prints the headers of what comes.
	list := func() string {
		return c.runToEnd(t, team, r.clientPod(t, "get", "--raw", listOf(team), "-v=8"), c.cp.Binaries().Kubectl)["client"]
	}
	for range 2 {
		pod := r.run(t)
		poll.Until(t, patience, "a list from memory", func() bool { return strings.Contains(list(), "; hit") })
		pod.stop(t)
		if notes := r.apply(t, with(true)); !strings.Contains(notes, "WARNING: bypass is on") {
			t.Errorf("the notes:\n%s", notes)
		}
		if hosts := c.hosts(t); strings.Contains(hosts, "127.0.0.2 ") {
			t.Errorf("the Service still leads to listproxy's pods:\n%s", hosts)
		}
		if printed := list(); !strings.Contains(printed, "PodList") || strings.Contains(printed, "Cache-Status") {
			t.Errorf("without a replica:\n%s", printed)
		}
		r.apply(t, with(false))
	}
	if left, err := c.admin.DiscoveryV1().EndpointSlices(r.namespace).List(t.Context(), metav1.ListOptions{}); err != nil || len(left.Items) > 0 {
		t.Errorf("left behind: %v, %v", left.Items, err)
	}
}

// checkClientsConfigMap: what the chart wrote is what listproxy kubeconfig --in-cluster prints, with
// the CAs in a file beside it.
func checkClientsConfigMap(t *testing.T, r *release, namespace string) {
	t.Helper()
	written, err := r.c.admin.CoreV1().ConfigMaps(namespace).Get(t.Context(), "listproxy-client", metav1.GetOptions{})
	expect.NoError(t, err)
	own, err := clientcmd.Load([]byte(written.Data["kubeconfig"]))
	expect.NoError(t, err)
	cluster := own.Clusters["listproxy"]
	if cluster == nil || cluster.CertificateAuthority != "ca.crt" {
		t.Fatalf("clusters: %v", own.Clusters)
	}
	cluster.CertificateAuthority, cluster.CertificateAuthorityData = "", []byte(written.Data["ca.crt"])

	dir := t.TempDir()
	cmd := kubeconfig.NewCommand()
	args := []string{"--in-cluster", "--namespace", namespace, "--server", cluster.Server}
	for file, pem := range map[string][]byte{"listproxy-ca.crt": r.certificate(t).Data["ca.crt"], "cluster-ca.crt": r.c.cp.CA()} {
		expect.NoError(t, os.WriteFile(filepath.Join(dir, file), pem, 0o600))
	}
	args = append(args, "--certificate-authority", filepath.Join(dir, "listproxy-ca.crt"), "--certificate-authority", filepath.Join(dir, "cluster-ca.crt"))
	var out bytes.Buffer
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	expect.NoError(t, cmd.ExecuteContext(t.Context()))
	printed, err := clientcmd.Load(out.Bytes())
	expect.NoError(t, err)
	if diff := cmp.Diff(printed, own, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("-printed +of the chart:\n%s", diff)
	}
}
