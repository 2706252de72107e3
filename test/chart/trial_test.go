package chart

import (
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/listproxy/listproxy/test/expect"
)

// TestTrialBesideTheChart: what the README says to apply and to delete for a trial shares no name
// with an installation as the README says it, nor with its namespace and its account.
func TestTrialBesideTheChart(t *testing.T) {
	installed := map[string]bool{"listproxy": true} // --namespace listproxy
	file := values(t, "{clientCertificates: {enabled: true, caConfigMap: {name: ca}}, impersonation: {users: [jane]}}")
	for _, name := range namesIn(t, render(t, file, "--namespace", "listproxy").objects) {
		installed[name] = true
	}
	for _, file := range []string{"rbac.yaml", "rbac-impersonation.yaml"} {
		text, err := os.ReadFile(repository + "/docs/" + file) // #nosec G304 -- of this repository
		expect.NoError(t, err)
		for _, name := range namesIn(t, objects(t, string(text))) {
			if installed[name] && name != "kube-system" {
				t.Errorf("docs/%s: the chart has the name %q, too", file, name)
			}
		}
	}
}

// TestFlowSchemaOfTheChart: docs/flow-schema.yaml is for the account of an installation as the README
// says it.
func TestFlowSchemaOfTheChart(t *testing.T) {
	text, err := os.ReadFile(repository + "/docs/flow-schema.yaml")
	expect.NoError(t, err)
	schema := one[*flowcontrolv1.FlowSchema](t, objects(t, string(text)))
	deployment := one[*appsv1.Deployment](t, render(t, values(t, "{}"), "--namespace", "listproxy").objects)
	want := flowcontrolv1.ServiceAccountSubject{Namespace: deployment.Namespace, Name: deployment.Spec.Template.Spec.ServiceAccountName}
	expect.Same(t, want, *schema.Spec.Rules[0].Subjects[0].ServiceAccount)
}

// namesIn are the names and namespaces of objects and of those to whom they give rights.
func namesIn(t *testing.T, all []runtime.Object) (names []string) {
	t.Helper()
	for _, object := range all {
		about, err := meta.Accessor(object)
		expect.NoError(t, err)
		names = append(names, about.GetName())
		if namespace := about.GetNamespace(); namespace != "" {
			names = append(names, namespace)
		}
		var subjects []rbacv1.Subject
		switch binding := object.(type) {
		case *rbacv1.ClusterRoleBinding:
			subjects = binding.Subjects
		case *rbacv1.RoleBinding:
			subjects = binding.Subjects
		}
		for _, subject := range subjects {
			names = append(names, subject.Name, subject.Namespace)
		}
	}
	return names
}
