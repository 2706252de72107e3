package auth

import (
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
)

// scope has the namespaces whose Roles and RoleBindings decide about a right: "", which stands for ClusterRoles and
// their bindings, the one that the question is about, and that of a service account that is impersonated.
type scope [3]string

func scopeOf(id Identity, a *Attributes) scope {
	namespaces := scope{"", a.Namespace}
	if user := id.Named(); user != nil {
		namespaces[2], _, _ = serviceaccount.SplitUsername(user.Name) // "" if it is another user
	}
	return namespaces
}
