package cluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/listproxy/listproxy/snapshot"
)

// storageVersions is the path of the StorageVersion objects, where the upstream has them (feature
// gate StorageVersionAPI, off by default). There each API server says in which version it writes a
// resource. While they disagree, or have said nothing yet, nothing is kept of the resource. That they
// agree does not prove that the bytes are the same: another release can write the same version in
// other bytes.
//
// Resources that are stored together under several groups have one object, for one of these
// groups; kube-apiserver 1.36 has only Events of that kind, which are never kept.
const storageVersions = "/apis/internal.apiserver.k8s.io/v1alpha1/storageversions"

// stored tells that what the API servers say together about how they store a resource has changed. Its name is
// group.resource, with core for the group that has no name (k8s.io/apiserver/pkg/storageversion); a
// resource's name has no dots.
func (c *Cluster) stored(of change[bool]) {
	disagreed, disagree := of.was != nil && !*of.was, of.is != nil && !*of.is
	if disagree == disagreed {
		return
	}
	dot := strings.LastIndexByte(of.name, '.')
	gr := schema.GroupResource{Group: of.name[:max(0, dot)], Resource: of.name[dot+1:]}
	if gr.Group == "core" {
		gr.Group = ""
	}
	until, what := snapshot.Lift(), "the API servers agree again in which version they write a resource"
	if disagree {
		until, what = snapshot.UntilLifted(), "the API servers do not agree in which version they write a resource: it is forwarded until they do"
	}
	c.config.Log.Info(what, "resource", gr.String())
	c.config.Invalidate(snapshot.Invalidation{Cause: snapshot.Servers, Scope: snapshot.OfResource(gr), Until: until})
}

// readStorageVersion reports whether the API servers agree on a version. One that cannot be read is not an
// agreement.
func readStorageVersion(o *object) (agreed bool) {
	return o.Status.CommonEncodingVersion != "" && o.condition("AllEncodingVersionsEqual") != "False"
}
