package policy

import "testing"

// TestConfigFile: the digest is of the bytes that were read, as sha256sum has it.
func TestConfigFile(t *testing.T) {
	c, err := ParseConfig("p.yaml", []byte("apiVersion: listproxy.io/v1alpha1\nkind: Policy\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := File{Name: "p.yaml", SHA256: "09c9bf210fd2dc504b45f9ab2e54b76484fd07becacad306f662288b183de7b2"}
	if c.File() != want {
		t.Errorf("it is %+v, want %+v", c.File(), want)
	}
	if got := DefaultConfig().File(); got != (File{}) {
		t.Errorf("the default policy is of the file %+v", got)
	}
}
