package results

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// FS is what a Store changes on disk. Tests put one in that fails.
type FS interface {
	MkdirAll(dir string) error
	Create(name string) (File, error) // truncates
	Rename(from, to string) error
	Remove(name string) error
	SyncDir(dir string) error // makes renames in dir durable
}

// File is a file being written.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// Disk is the real file system.
type Disk struct{}

func (Disk) MkdirAll(dir string) error { return os.MkdirAll(dir, 0o755) }

func (Disk) Create(name string) (File, error) { return os.Create(name) }

func (Disk) Rename(from, to string) error { return os.Rename(from, to) }

func (Disk) Remove(name string) error { return os.Remove(name) }

func (Disk) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

// tmpSuffix ends the names of files that are not finished; readers ignore them.
const tmpSuffix = ".tmp"

// durable is a file that appears under its name whole and on disk, or not at all.
type durable struct {
	*bufio.Writer
	fs   FS
	name string
	file File
}

func createDurable(fs FS, name string) (*durable, error) {
	f, err := fs.Create(name + tmpSuffix)
	if err != nil {
		return nil, err
	}
	return &durable{bufio.NewWriterSize(f, 1<<16), fs, name, f}, nil
}

// commit writes what is buffered, syncs, renames, and syncs the directory.
func (d *durable) commit() error {
	err := d.Flush()
	if err == nil {
		err = d.file.Sync()
	}
	if err != nil {
		d.abort()
		return fmt.Errorf("cannot write %s: %w", d.name, err)
	}
	if err = d.file.Close(); err == nil {
		err = d.fs.Rename(d.name+tmpSuffix, d.name)
	}
	if err == nil {
		err = d.fs.SyncDir(filepath.Dir(d.name))
	}
	if err != nil {
		return fmt.Errorf("cannot finish %s: %w", d.name, err)
	}
	return nil
}

// abort drops the file. Its errors change nothing: a reader ignores the rest.
func (d *durable) abort() {
	d.file.Close()
	d.fs.Remove(d.name + tmpSuffix)
}

// writeDurably makes a file of what write writes.
func writeDurably(fs FS, name string, write func(io.Writer) error) error {
	d, err := createDurable(fs, name)
	if err != nil {
		return err
	}
	if err := write(d); err != nil {
		d.abort()
		return fmt.Errorf("cannot write %s: %w", name, err)
	}
	return d.commit()
}
