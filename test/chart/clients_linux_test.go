package chart

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/listproxy/listproxy/cmd/listproxy/kubeconfig"
	"github.com/listproxy/listproxy/test/expect"
)

// TestClients: a pod in a namespace that clients.namespaces names has a list from memory, with
// nothing but its account's directory and the ConfigMap; and from a namespace that is named no more
// the ConfigMap goes.
func TestClients(t *testing.T) {
	c := newCluster(t)
	const team, other, robot = "team-pods", "team-others", "robot"
	for _, name := range []string{team, other} {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	r := c.newRelease(t, "listproxy", "proxies")
	if _, err := r.tryApply(t, "clients: {namespaces: ["+team+"]}"); err == nil || !strings.Contains(err.Error(), "clients.caBundle") {
		t.Fatalf("without the cluster's CA: %v", err)
	}
	// As kube-controller-manager makes it in each namespace.
	ca := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": string(c.cp.CA())}}
	if _, err := c.admin.CoreV1().ConfigMaps("default").Create(t.Context(), ca, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.apply(t, "clients: {namespaces: ["+team+"]}")
	pod := r.run(t)

	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: robot}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: robot}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}},
	}}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: robot},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: robot},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: robot, Namespace: team}},
	}
	_, err := c.admin.CoreV1().ServiceAccounts(team).Create(t.Context(), account, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().Roles(team).Create(t.Context(), role, metav1.CreateOptions{})
	expect.NoError(t, err)
	_, err = c.admin.RbacV1().RoleBindings(team).Create(t.Context(), binding, metav1.CreateOptions{})
	expect.NoError(t, err)
	c.settle(t)

	// The program has client-go's own loading: KUBECONFIG is all that it is told.
	automount := true
	ours := r.deployment(t).Spec.Template.Spec
	client := corev1.PodSpec{
		ServiceAccountName:           robot,
		AutomountServiceAccountToken: &automount,
		SecurityContext:              ours.SecurityContext,
		Volumes: []corev1.Volume{{Name: "listproxy", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{
			LocalObjectReference: corev1.LocalObjectReference{Name: "listproxy-client"},
		}}}},
		Containers: []corev1.Container{{
			Name:         "client",
			Args:         []string{"try", "--wait=2m", "/api/v1/namespaces/" + team + "/pods?resourceVersion=0"},
			Env:          []corev1.EnvVar{{Name: "KUBECONFIG", Value: "/etc/listproxy/kubeconfig"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "listproxy", MountPath: "/etc/listproxy", ReadOnly: true}},
		}},
	}
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
