package results

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A pack file holds many parts, one after another, as they were committed:
//
//	magic, then [length uint32][CRC-32C of the length uint32][part]
//
// A part is written with one call and so survives the end of its process. The file is
// synced when syncEvery has passed since the last time, and at the latest that long
// after a commit: a power cut costs the points of that moment, which run again. What
// stands behind a torn entry is ignored; a new process begins a new pack.
const (
	packMagic   = "dswpack1"
	packSuffix  = ".pack"
	entryHeader = 8
	packParts   = 4096     // a pack is closed after so many parts,
	packBytes   = 32 << 20 // or so many bytes
	spillBytes  = 900 << 10
	syncEvery   = 100 * time.Millisecond
)

// packWriter appends parts to the newest pack. Its Store's mutex guards it.
type packWriter struct {
	next   int // number of the next pack
	name   string
	file   File
	parts  int
	bytes  int64
	synced time.Time // when the file was last on disk whole
	timer  *time.Timer
	err    error // of a sync in the background
	entry  []byte
}

// add appends a part and says where it stands. The caller holds mu.
func (s *Store) addToPack(part []byte) (location, error) {
	p := &s.pack
	if p.err != nil {
		return location{}, p.err
	}
	if p.file == nil {
		if err := s.openPack(); err != nil {
			return location{}, err
		}
	}
	p.entry = binary.LittleEndian.AppendUint32(p.entry[:0], uint32(len(part)))
	p.entry = binary.LittleEndian.AppendUint32(p.entry, crc32.Checksum(p.entry, castagnoli))
	p.entry = append(p.entry, part...)
	at := location{file: p.name, at: p.bytes + entryHeader, size: int64(len(part))}
	if _, err := p.file.Write(p.entry); err != nil {
		p.file.Close()
		p.file = nil // what it holds stays readable; the next part begins another
		return location{}, fmt.Errorf("cannot write %s: %w", p.name, err)
	}
	p.parts++
	p.bytes += int64(len(p.entry))
	if p.parts >= packParts || p.bytes >= packBytes {
		return at, p.close()
	}
	return at, s.syncSoon()
}

func (s *Store) openPack() error {
	if err := s.stillOurs(); err != nil {
		return err
	}
	p := &s.pack
	name := filepath.Join(s.dir, partsDir, fmt.Sprintf("%06d%s", p.next, packSuffix))
	f, err := s.fs.Create(name)
	if err != nil {
		return err
	}
	p.next++
	if _, err = f.Write([]byte(packMagic)); err == nil {
		err = s.fs.SyncDir(filepath.Dir(name))
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("cannot begin %s: %w", name, err)
	}
	p.name, p.file, p.parts, p.bytes, p.synced = name, f, 0, int64(len(packMagic)), time.Time{}
	return nil
}

// syncSoon syncs the pack now if the last time is long ago, else a little later.
func (s *Store) syncSoon() error {
	p := &s.pack
	since := s.opt.Now().Sub(p.synced)
	if since >= syncEvery || since < 0 {
		return errors.Join(s.stillOurs(), p.sync(s.opt.Now()))
	}
	if p.timer == nil {
		p.timer = time.AfterFunc(syncEvery-since, func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			p.timer = nil
			if err := p.sync(s.opt.Now()); err != nil && p.err == nil {
				p.err = err
			}
		})
	}
	return nil
}

func (p *packWriter) sync(now time.Time) error {
	if p.file == nil {
		return nil
	}
	if err := p.file.Sync(); err != nil {
		return fmt.Errorf("cannot write %s: %w", p.name, err)
	}
	p.synced = now
	return nil
}

// close makes the pack durable and ends it; the next part begins another.
func (p *packWriter) close() error {
	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	err := p.err
	if p.file != nil {
		err = errors.Join(err, p.sync(time.Time{}), p.file.Close())
		p.file = nil
	}
	return err
}

// location is where a part stands: in a pack, or alone in its file.
type location struct {
	file     string
	at, size int64 // of the part
	row      int64 // where its last frame begins, from at
}

// partList is what the folder of the parts holds.
type partList struct {
	finished []Finished // one a key: done before failed, else the latest
	others   int        // whole parts of another specification or schema
	packs    int        // number of the next pack
}

// listParts reads every whole part of the specification; torn ones and unfinished ones
// are passed over, those of another specification or schema counted. The key inside a
// part decides whose it is, not the name of its file.
func listParts(dir, digest string) (list partList, err error) {
	entries, err := os.ReadDir(filepath.Join(dir, partsDir))
	if err != nil {
		return list, err
	}
	found := map[Key]int{}
	take := func(f *frames, at location) error {
		head, set, row, err := f.row()
		if errors.Is(err, errTorn) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", at.file, err)
		}
		if head.SchemaVersion != SchemaVersion || head.SpecDigest != digest {
			list.others++
			return nil
		}
		at.row = row
		part := Finished{Key: head.key(), Status: head.Status, Reason: head.Reason, Version: head.Version, tables: set, at: at}
		i, known := found[part.Key]
		switch {
		case !known:
			found[part.Key] = len(list.finished)
			list.finished = append(list.finished, part)
		case part.Status == Done || list.finished[i].Status != Done:
			list.finished[i] = part
		}
		return nil
	}
	for _, e := range entries { // sorted: a pack's number orders it
		name := filepath.Join(dir, partsDir, e.Name())
		switch {
		case strings.HasSuffix(name, packSuffix):
			if n, err := strconv.Atoi(strings.TrimSuffix(e.Name(), packSuffix)); err == nil {
				list.packs = max(list.packs, n+1)
			}
			err = eachEntry(name, take)
		case strings.HasSuffix(name, partSuffix):
			err = onFile(name, take)
		}
		if err != nil {
			return list, err
		}
	}
	return list, nil
}

// openSized opens a file and says how long it is.
func openSized(name string) (*os.File, int64, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, info.Size(), nil
}

// onFile calls fn with the frames of a part that has a file of its own.
func onFile(name string, fn func(*frames, location) error) error {
	file, size, err := openSized(name)
	if err != nil {
		return err
	}
	defer file.Close()
	at := location{file: name, size: size}
	return fn(newFrames(file, at), at)
}

// eachEntry calls fn with the frames of every entry of a pack, up to the first that is
// torn.
func eachEntry(name string, fn func(*frames, location) error) error {
	file, end, err := openSized(name)
	if err != nil {
		return err
	}
	defer file.Close()
	var head [entryHeader]byte
	if n, _ := io.ReadFull(file, head[:]); n < entryHeader || string(head[:]) != packMagic {
		return nil
	}
	for at := int64(len(packMagic)); at+entryHeader <= end; {
		if _, err := file.ReadAt(head[:], at); err != nil {
			return err
		}
		size := int64(binary.LittleEndian.Uint32(head[:]))
		at += entryHeader
		if crc32.Checksum(head[:4], castagnoli) != binary.LittleEndian.Uint32(head[4:]) || at+size > end {
			return nil
		}
		where := location{file: name, at: at, size: size}
		if err := fn(newFrames(file, where), where); err != nil {
			return err
		}
		at += size
	}
	return nil
}
