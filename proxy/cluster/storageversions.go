package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersions is the path of the StorageVersions, which the upstream has with the feature gate StorageVersionAPI
// (off by default). In them each API server notes the version in which it writes a resource. While these differ, or are
// missing, nothing is kept of the resource. Equal versions do not prove that the bytes are the same: another release
// can write the same version in other bytes.
//
// Resources that are stored together under several groups have one StorageVersion, for one of the groups. In
// kube-apiserver 1.36 these are only Events, which are never kept.
const storageVersions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// storageVersionChanged invalidates a resource until the API servers agree on its version. The name of a StorageVersion
// is group.resource, with core for the core group (k8s.io/apiserver/pkg/storageversion). The name of a resource has no
// dots.
func (c *Cluster) storageVersionChanged(agreed change[bool]) {
	differed := agreed.before != nil && !*agreed.before
	differ := agreed.after != nil && !*agreed.after
	if differ == differed {
		return
	}
	dot := strings.LastIndexByte(agreed.name, '.')
	gr := schema.GroupResource{Group: agreed.name[:max(0, dot)], Resource: agreed.name[dot+1:]}
	if gr.Group == "core" {
		gr.Group = ""
	}
	until := snapshot.Lift()
	what := "the API servers agree again in which version they write a resource"
	if differ {
		until = snapshot.UntilLifted()
		what = "the API servers do not agree in which version they write a resource: it is forwarded until they do"
	}
	c.config.Log.Info(what, "resource", gr.String())
	c.config.Invalidate(snapshot.Invalidation{Cause: snapshot.Servers, Scope: snapshot.OfResource(gr), Until: until})
}

// readStorageVersion reports whether the API servers agree on a version.
func readStorageVersion(o *object) (agreed bool) {
	return o.Status.CommonEncodingVersion != "" && o.conditionStatus("AllEncodingVersionsEqual") != "False"
}
